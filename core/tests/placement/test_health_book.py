import pytest

from superinfer_core.placement.health import DeviceEvent, EventKind, FaultLevel, judge
from superinfer_core.placement.health_book import (
    Damping,
    HealthBook,
    Signs,
    condition_of,
    note_event,
    note_signs,
)
from superinfer_core.placement.node import HealthState, RecoveryAction

A, B, C = "GPU-a", "GPU-b", "GPU-c"
GROUPS = {A: "bridge-0", B: "bridge-0"}
DAMPING = Damping(hold_s=30, longest_hold_s=200, forget_s=1000, doubt_s=300)
FINE = RecoveryAction.NONE
HEALTHY = HealthState.HEALTHY


def xid(number: int, gi_id: int | None = None, gpu: str = A) -> DeviceEvent:
    return DeviceEvent(EventKind.XID, gpu, gi_id, number)


def action(wanted: RecoveryAction, gpu: str = A) -> DeviceEvent:
    return DeviceEvent(EventKind.RECOVERY_ACTION, gpu, action=wanted)


def state(book: HealthBook, gpu: str = A, gi_id: int | None = None, *, mig: bool = False) -> HealthState:
    return condition_of(book, gpu, gi_id, GROUPS, mig=mig or gi_id is not None).state


def asked(
    book: HealthBook, now_s: float, wanted: RecoveryAction | None = FINE, *, lost: bool = False
) -> HealthBook:
    signs = [Signs(A, lost=lost, action=wanted), Signs(B, action=FINE), Signs(C, action=FINE)]
    return note_signs(book, signs, now_s, DAMPING)


def healed_at(book: HealthBook, now_s: float) -> float:
    """The first whole second at which instance 2 is well again if it is asked then, and nothing happens."""
    return next(s for s in (now_s + wait for wait in range(1_000)) if state(asked(book, s), A, 2) is HEALTHY)


@pytest.mark.parametrize(
    ("event", "level", "state"),
    [
        (xid(13, 1), FaultLevel.INSTANCE, HealthState.HEALTHY),
        (xid(31), FaultLevel.INSTANCE, HealthState.HEALTHY),
        (xid(94, 1), FaultLevel.INSTANCE, HealthState.UNHEALTHY),
        (xid(94), FaultLevel.GPU, HealthState.UNHEALTHY),
        (xid(95, 1), FaultLevel.GPU, HealthState.UNHEALTHY),
        (xid(48, 1), FaultLevel.GPU, HealthState.UNHEALTHY),
        (xid(63), FaultLevel.GPU, HealthState.DEGRADED),
        (xid(74), FaultLevel.CLIQUE, HealthState.UNHEALTHY),
        (xid(79, 1), FaultLevel.GPU, HealthState.UNHEALTHY),
        (xid(777, 1), FaultLevel.INSTANCE, HealthState.UNHEALTHY),
        (xid(777), FaultLevel.GPU, HealthState.UNHEALTHY),
        (DeviceEvent(EventKind.DOUBLE_BIT_ECC, A, 1), FaultLevel.INSTANCE, HealthState.UNHEALTHY),
        (DeviceEvent(EventKind.DOUBLE_BIT_ECC, A), FaultLevel.GPU, HealthState.UNHEALTHY),
        (DeviceEvent(EventKind.SINGLE_BIT_ECC, A), FaultLevel.INSTANCE, HealthState.HEALTHY),
        (action(RecoveryAction.GPU_RESET), FaultLevel.GPU, HealthState.UNHEALTHY),
        (action(RecoveryAction.DRAIN_AND_RESET), FaultLevel.GPU, HealthState.DEGRADED),
        (action(RecoveryAction.DRAIN_P2P), FaultLevel.CLIQUE, HealthState.DEGRADED),
        (action(RecoveryAction.NODE_REBOOT), FaultLevel.NODE, HealthState.UNHEALTHY),
    ],
    ids=lambda value: str(getattr(value, "xid", "") or getattr(value, "action", value)),
)
def test_what_an_event_takes_with_it(event: DeviceEvent, level: FaultLevel, state: HealthState) -> None:
    verdict = judge(event)
    assert verdict.state is state
    if state is not HealthState.HEALTHY:
        assert verdict.level is level


def test_an_error_in_one_instance_leaves_its_neighbours_and_its_gpu() -> None:
    book = note_event(HealthBook(), xid(94, 2), 0)
    assert state(book, A, 2) is HealthState.UNHEALTHY
    assert [state(book, A, 1), state(book, A), state(book, B, 2)] == [HealthState.HEALTHY] * 3
    found = condition_of(book, A, 2, GROUPS)
    assert (found.xid, found.reason, found.since_s) == (94, "ContainedECC", 0)


def test_a_gpu_error_takes_its_instances_and_no_other_gpu() -> None:
    book = note_event(HealthBook(), xid(95, 2), 0)
    assert [state(book, A), state(book, A, 1), state(book, A, 2)] == [HealthState.UNHEALTHY] * 3
    assert state(book, B) is HealthState.HEALTHY


def test_a_link_error_keeps_new_work_off_linked_gpus_and_does_not_reach_instances() -> None:
    book = note_event(HealthBook(), xid(74), 0)
    assert [state(book, gpu) for gpu in (A, B, C)] == [
        HealthState.UNHEALTHY,
        HealthState.DEGRADED,
        HealthState.HEALTHY,
    ]
    assert state(book, B, 1) is HealthState.HEALTHY
    assert state(book, B, mig=True) is HealthState.HEALTHY


def test_a_reboot_takes_the_whole_node() -> None:
    book = asked(HealthBook(), 0, RecoveryAction.NODE_REBOOT)
    assert [state(book, gpu) for gpu in (A, B, C)] == [HealthState.UNHEALTHY] * 3
    assert state(book, C, 4) is HealthState.UNHEALTHY


def test_a_contained_error_heals_when_it_does_not_come_again() -> None:
    book = note_event(HealthBook(), xid(94, 2), 100)
    book = note_event(book, xid(94, 2), 120)
    assert state(asked(book, 149), A, 2) is HealthState.UNHEALTHY
    assert state(asked(book, 150), A, 2) is HealthState.HEALTHY


def test_an_error_that_needs_a_reset_never_heals_by_time_where_the_driver_cannot_say() -> None:
    book = note_event(HealthBook(), xid(48), 0)
    assert state(asked(book, 10**6, None)) is HealthState.UNHEALTHY


def test_a_reset_brings_the_gpu_back_after_the_hold() -> None:
    book = asked(note_event(HealthBook(), xid(48), 0), 5, RecoveryAction.GPU_RESET)
    book = asked(book, 1000, RecoveryAction.GPU_RESET)
    book = asked(book, 1010)
    assert state(asked(book, 1039)) is HealthState.UNHEALTHY
    assert state(asked(book, 1040)) is HealthState.HEALTHY


def test_the_event_that_no_recovery_is_needed_is_a_sign_too() -> None:
    book = note_event(HealthBook(), xid(48), 0)
    book = note_event(book, action(RecoveryAction.GPU_RESET), 1)
    book = note_event(book, action(FINE), 50)
    assert state(asked(book, 79, None)) is HealthState.UNHEALTHY
    assert state(asked(book, 80, None)) is HealthState.HEALTHY


def test_a_driver_that_asks_for_nothing_is_believed_in_the_end() -> None:
    book = note_event(HealthBook(), xid(119), 0)
    assert state(asked(book, 299)) is HealthState.UNHEALTHY
    book = asked(book, 300)
    assert state(asked(book, 330)) is HealthState.HEALTHY


def test_a_lost_gpu_is_back_when_it_answers() -> None:
    book = asked(HealthBook(), 0, None, lost=True)
    assert condition_of(book, A, None, GROUPS).reason == "FallenOffTheBus"
    book = asked(asked(book, 500, None, lost=True), 510)
    assert state(asked(book, 539)) is HealthState.UNHEALTHY
    assert state(asked(book, 540)) is HealthState.HEALTHY


def test_pending_row_remaps_keep_new_work_away_until_the_reset() -> None:
    pending = note_signs(HealthBook(), [Signs(A, action=FINE, rows_pending=True)], 0, DAMPING)
    assert state(pending) is HealthState.DEGRADED
    failed = note_signs(HealthBook(), [Signs(A, action=FINE, rows_failed=True)], 0, DAMPING)
    assert state(failed) is HealthState.UNHEALTHY


def test_flapping_is_held_longer_each_time_and_forgiven_after_good_conduct() -> None:
    book, now_s, holds = HealthBook(), 0.0, []
    for _ in range(5):
        book = note_event(book, xid(94, 2), now_s)
        healed_s = healed_at(book, now_s)
        holds.append(healed_s - now_s)
        book = asked(book, healed_s)
        assert state(book, A, 2) is HealthState.HEALTHY
        now_s = healed_s + 10
    assert holds == [30, 60, 120, 200, 200]
    book = asked(book, now_s + 1000)
    book = note_event(book, xid(94, 2), now_s + 1000)
    assert healed_at(book, now_s + 1000) == now_s + 1030


def test_one_incident_with_many_symptoms_counts_once() -> None:
    book = note_event(HealthBook(), xid(48), 0)
    book = note_event(book, DeviceEvent(EventKind.DOUBLE_BIT_ECC, A), 0)
    for now_s in (1, 2, 3):
        book = asked(book, now_s, RecoveryAction.GPU_RESET)
    book = asked(book, 10)
    assert state(asked(book, 40)) is HealthState.HEALTHY


def test_coming_back_during_the_hold_counts_as_flapping() -> None:
    book = asked(HealthBook(), 0, RecoveryAction.GPU_RESET)
    book = asked(book, 10)
    book = asked(book, 20, RecoveryAction.GPU_RESET)
    book = asked(book, 30)
    assert state(asked(book, 89)) is HealthState.UNHEALTHY
    assert state(asked(book, 90)) is HealthState.HEALTHY


def test_a_draining_gpu_keeps_its_work() -> None:
    book = asked(HealthBook(), 0, RecoveryAction.DRAIN_AND_RESET)
    found = condition_of(book, A, None, GROUPS)
    assert (found.state, found.action) == (HealthState.DEGRADED, RecoveryAction.DRAIN_AND_RESET)
