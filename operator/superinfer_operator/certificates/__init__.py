"""Certificates for mutual TLS between pods: an authority of our own, issued by default and rotated.

`authority` and `leaf` compute what the Secrets should hold; the reconcile loop stores it. cert-manager can
take this place: Secrets that name another owner are left alone by whoever calls.
"""

from superinfer_operator.certificates.authority import Authority, next_authority
from superinfer_operator.certificates.leaf import next_leaf
from superinfer_operator.certificates.terms import Terms

__all__ = ["Authority", "Terms", "next_authority", "next_leaf"]
