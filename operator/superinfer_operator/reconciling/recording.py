"""Sends Events; one that cannot be sent is lost, and logged."""

import logging

from superinfer_kube.errors import KubeError
from superinfer_kube.resources import EVENTS
from superinfer_operator.reconciling.clock import Clock, Now
from superinfer_operator.reconciling.events import EventType, Happening, event_document
from superinfer_operator.reconciling.writing import Api

_log = logging.getLogger("superinfer.operator")


class Recorder:
    """Sends Events of one operator."""

    def __init__(self, api: Api, *, instance: str, clock: Clock) -> None:
        self._api = api
        self._instance = instance
        self._number = 0
        self.now = clock

    async def record(self, happening: Happening, now: Now) -> None:
        """Send one."""
        self._number += 1
        about = happening.about
        level = logging.WARNING if happening.type is EventType.WARNING else logging.INFO
        _log.log(
            level,
            "%s %s/%s: %s: %s",
            about.kind,
            about.namespace,
            about.name,
            happening.reason,
            happening.note,
        )
        document = event_document(
            happening, now_micro=now.micro_text, instance=self._instance, number=self._number
        )
        try:
            await self._api.create(EVENTS, document)
        except KubeError as error:
            _log.warning("event not sent: %s", error)
