"""Where the command keeps what is expensive to make again: models and measured profiles."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """The user's cache directory, shared with the executor's prepared models."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "superinfer"


def models_dir() -> Path:
    """Prepared model directories, one per known name."""
    return cache_dir() / "models"


def profiles_dir() -> Path:
    """Measured profiles of this machine."""
    return cache_dir() / "profiles"
