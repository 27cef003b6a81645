"""Tests here share scheduling_cases.py; import mode importlib adds no directory by itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
