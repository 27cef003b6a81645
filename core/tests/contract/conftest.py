"""Tests here share contract_cases.py; import mode importlib adds no directory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
