"""How long certificates live and how early they are replaced. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

RENEW_AFTER: Final = 2 / 3
"""Share of its life after which a certificate is replaced: the rest is time to notice that it was not."""

CLOCK_SKEW: Final = timedelta(minutes=5)
"""Certificates begin so much earlier, for nodes whose clocks are behind."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Lives of certificates.

    Attributes:
        authority: life of an authority.
        leaf: life of a pod's certificate.
        announce: how long a new authority is trusted everywhere before it signs anything. Longer than a
            kubelet takes to update a mounted Secret (a minute or two) by far, so that no peer ever meets a
            certificate whose authority it does not know.
    """

    authority: timedelta = timedelta(days=730)
    leaf: timedelta = timedelta(days=90)
    announce: timedelta = timedelta(hours=24)


def is_due(begins: datetime, ends: datetime, now: datetime) -> bool:
    """Whether so much of a life has passed that its successor should be made."""
    return now >= begins + (ends - begins) * RENEW_AFTER
