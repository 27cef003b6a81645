"""bench-slo: vLLM fcfs, vLLM priority, earliest deadline first and SuperInfer on one real engine."""
