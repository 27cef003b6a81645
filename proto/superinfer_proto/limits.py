"""How much one message between ingress, sidecar, engine and peers may carry: every end must allow the same.

Concurrency: constants.
"""

from typing import Final

MAX_MESSAGE_BYTES: Final = 64 << 20
"""Room for the longest bodies an ingress takes (32 MiB at most) and for a batch of KV blocks."""

MESSAGE_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)
"""The same for grpc's channels and servers."""
