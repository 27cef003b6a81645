"""A request for several choices is admitted and served as so many sequences."""

from desk_room import Room, gold

from superinfer_core.prediction.step_model import UNPROFILED


def refused(room: Room) -> list[str]:
    return [d.request_id for d in room.ingress.decisions if not d.admitted]


def test_a_pace_that_one_choice_keeps_is_not_promised_to_forty() -> None:
    room = Room()
    room.engine.max_num_seqs = 64
    room.desk.engine_up(room.engine)
    itl_ms = 1.3 * UNPROFILED.step_ms(decode_seqs=8)
    room.send("one", gold(ttft_target_ms=10_000, itl_target_ms=itl_ms), choices=1)
    room.send("forty", gold(ttft_target_ms=10_000, itl_target_ms=itl_ms), choices=40)
    assert refused(room) == ["forty"]


def test_choices_that_run_count_against_who_comes_next() -> None:
    for choices, expected in ((1, []), (40, ["next"])):
        room = Room()
        room.engine.max_num_seqs = 64
        room.desk.engine_up(room.engine)
        itl_ms = 1.3 * UNPROFILED.step_ms(decode_seqs=8)
        # A pace that leaves them hardly a step to pause in: with a slow one they would make room.
        busy_ms = 1.2 * UNPROFILED.step_ms(decode_seqs=40)
        room.send("many", gold(ttft_target_ms=10_000, itl_target_ms=busy_ms), choices=choices)
        room.send("next", gold(ttft_target_ms=10_000, itl_target_ms=itl_ms))
        assert refused(room) == expected
