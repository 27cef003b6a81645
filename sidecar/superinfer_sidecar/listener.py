"""Who hears what becomes of requests; the desk knows nothing of checkpoints."""

from superinfer_proto.v1 import sidecar_pb2
from superinfer_sidecar.tracked import Tracked


class DeskListener:
    """Hears nothing; see checkpoint/unit.py for one that does. Every method returns at once."""

    def admitted(self, request: Tracked) -> None:
        """A request is queued; one marked as restoring is not handed over until that is taken back."""

    def left(self, request: Tracked, *, finished: bool) -> None:
        """An admitted request is here no longer; finished: by its own last output."""

    def peers(self, message: sidecar_pb2.PeerList) -> None:
        """An ingress has told of the pool."""
