"""Everything SuperInfer puts inside vLLM: the slack scheduler, exact resume, step facts, the worker's part.

Loaded by vLLM in its own processes (`--scheduler-cls`, and the entry point group `vllm.general_plugins`).
Every private thing of vLLM it touches has a test in executor/tests/plugin/test_touch_points.py.
"""
