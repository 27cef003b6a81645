"""The CustomResourceDefinitions, generated from the pydantic models of core.

Deterministic: the same models give the same bytes. The files in `crds/` are committed and checked against it.
"""
