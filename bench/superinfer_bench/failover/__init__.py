"""From the kill of an executor to the next token of its requests: restored, replayed, or begun again."""
