"""Contracts after resolution: inheritance, conflicts, short form, quotas, fulfilment and budgets."""
