"""What runs next, on what terms: slack, order, step budget, preemption, admission on one engine."""
