"""Times and lengths that have not happened yet: step model, online correction, output lengths."""
