"""From what is watched to what placement takes, and back."""
