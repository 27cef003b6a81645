"""Tests here share placement_cases.py and placement_world.py; import mode importlib adds no directory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
