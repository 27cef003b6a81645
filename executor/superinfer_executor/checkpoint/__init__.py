"""Checkpoints: filled KV blocks go to shared memory, and come from there instead of being computed again.

`connector.py` is what vLLM loads; every private thing of vLLM it touches has a test in
executor/tests/checkpoint/test_touch_points.py.
"""
