"""What the desk needs of the outside: an engine to give work to and ingresses to answer.

Every method returns at once; implementations collect and write later, on the same event loop.
"""

from typing import Protocol

from superinfer_proto.v1 import engine_pb2, sidecar_pb2, work_pb2


class EnginePort(Protocol):
    """One connected engine (one generation)."""

    @property
    def info(self) -> engine_pb2.EngineInfo:
        """What the engine said about itself."""

    @property
    def pid(self) -> int | None:
        """Its process, where that can be seen from here."""

    def render(self, request_id: str, path: str, body: bytes) -> None:
        """Ask for the sizes of a body; the answer comes back through the desk."""

    def submit(self, submit: work_pb2.Submit) -> None:
        """Give work."""

    def cancel(self, request_id: str, attempt: int) -> None:
        """Take work back, also work not sent yet."""


class IngressPort(Protocol):
    """One connected ingress."""

    def decide(self, decision: sidecar_pb2.Decision) -> None:
        """Answer a submit."""

    def begun(self, request_id: str, attempt: int) -> None:
        """Tell that the engine has been given this attempt."""

    def frame(self, frame: work_pb2.Frame) -> None:
        """Send output made or picked out here."""

    def engine_frame(self, encoded: bytes) -> None:
        """Pass on the encoded body of an engine's frame untouched."""

    def load(self, encoded: bytes) -> None:
        """Send a load report (an encoded FromSidecar)."""

    def info(self, info: sidecar_pb2.ExecutorInfo) -> None:
        """Tell about the engine, on connect and whenever it changes."""
