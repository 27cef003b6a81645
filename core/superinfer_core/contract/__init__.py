"""Contracts: parsing, inheritance and conflicts, the promise of a request, quotas, fulfilment.

The ways in: `parse.parse_contract`, `resolution.resolve_contracts`, `headers.parse_slo_headers`,
`request_slo.request_slo`, `quota.QuotaState`, `fulfilment.ContractWindow`, `explain.explain`.
"""
