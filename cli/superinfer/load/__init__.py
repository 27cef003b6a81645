"""Open-loop load against an OpenAI endpoint: requests leave when due, whatever became of others."""
