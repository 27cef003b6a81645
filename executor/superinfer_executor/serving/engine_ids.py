"""Names of our requests inside the engine: one per request, attempt and choice. Pure."""


def engine_id_of(request_id: str, attempt: int, choice: int) -> str:
    """The engine's name for one choice of one attempt."""
    return f"{request_id}/{attempt}/{choice}"


def request_id_of(engine_id: str) -> str:
    """The request behind an engine's name, also when it has ended; "" for nothing."""
    return engine_id.rsplit("/", 2)[0]
