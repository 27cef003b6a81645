"""Every decision SuperInfer takes: contracts, slack, prediction, admission, placement.

Pure by construction: no I/O, no clock, no randomness. `now_ms` is always an argument, in milliseconds of a
monotonic clock of the calling process. The ingress, the sidecar, the vLLM scheduler plug-in and the simulator
import the same functions, so what the simulator tests is what runs.
"""
