"""What runs next, on what terms: slack, order, step budget, preemption and admission over one engine's state."""
