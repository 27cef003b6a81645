"""Discrete-event simulation: the product's own decisions stepped over a model of time.

The simulator adds only time. Who is admitted, who goes first, how much prefill a step computes and who
gives way are `superinfer_core.scheduling`, the same code the sidecar and the vLLM plug-in run.
"""
