"""Contracts as the ingress holds them: files, keys, selection, accounts and the HTTP API over them."""
