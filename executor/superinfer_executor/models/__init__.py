"""Model directories for one machine: a small real chat model and a tiny random one; no downloads."""

from superinfer_executor.models.command import default_model_dir, main
from superinfer_executor.models.directory import MissingModelSource, ModelDirectoryOccupied
from superinfer_executor.models.smollm2 import prepare_smollm2
from superinfer_executor.models.tiny import prepare_tiny

__all__ = [
    "MissingModelSource",
    "ModelDirectoryOccupied",
    "default_model_dir",
    "main",
    "prepare_smollm2",
    "prepare_tiny",
]
