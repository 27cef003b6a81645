"""A start in words: what is being waited for and how far it is, and where the time went."""

import io

from rich.console import Console

from superinfer.serving.console import PlainProgress
from superinfer.serving.process import EventKind, ProcessEvent
from superinfer.serving.startup import StartUp


class Screen:
    def __init__(self) -> None:
        self.steps: list[str] = []
        self.events: list[str] = []

    def event(self, event: ProcessEvent) -> None:
        self.events.append(f"{event.name} {event.kind} {event.detail}".rstrip())

    def step(self, text: str) -> None:
        self.steps.append(text)

    def done(self) -> None: ...


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def loading(name: str, step: str) -> ProcessEvent:
    return ProcessEvent(name, EventKind.PROGRESS, f"loading: {step}", {"event": "loading", "step": step})


def started(clock: Clock, screen: Screen) -> StartUp:
    startup = StartUp(screen, clock)
    for seconds, event in (
        (0, ProcessEvent("executor-0", EventKind.STARTING)),
        (1, loading("executor-0", "vllm")),
        (12, loading("executor-0", "configuration")),
        (0.2, loading("executor-0", "engine")),
    ):
        clock.now_s += seconds
        startup.event(event)
    return startup


def test_a_wait_says_what_for_how_far_it_is_and_for_how_long() -> None:
    clock, screen = Clock(), Screen()
    startup = started(clock, screen)
    clock.now_s += 7
    startup.waiting_for(["executor-0"])
    assert screen.events[-1] == "executor-0 progress loading the model (3 of 5)"
    assert screen.steps == ["waiting for executor-0: loading the model, for 7 s"]


def test_what_has_said_nothing_yet_is_starting() -> None:
    screen = Screen()
    StartUp(screen, Clock()).waiting_for(["executor-0", "ingress"])
    assert screen.steps == ["waiting for executor-0, ingress: starting"]


def test_a_step_nobody_knows_is_shown_as_it_is() -> None:
    screen = Screen()
    StartUp(screen, Clock()).event(loading("executor-0", "aligning stars"))
    assert screen.events == ["executor-0 progress aligning stars"]


def test_the_sum_says_where_the_time_went() -> None:
    clock, screen = Clock(), Screen()
    startup = started(clock, screen)
    clock.now_s += 9
    startup.event(ProcessEvent("executor-0", EventKind.READY))
    assert startup.summary([("preparing the model", 3.0)]) == (
        "Up after 25 s: preparing the model 3 s, starting Python 1 s, importing vLLM 12 s,"
        " loading the model 9 s"
    )


def test_of_several_the_last_to_be_ready_is_told() -> None:
    clock, screen = Clock(), Screen()
    startup = started(clock, screen)
    startup.event(ProcessEvent("executor-0", EventKind.READY))
    startup.event(ProcessEvent("executor-1", EventKind.STARTING))
    clock.now_s += 30
    startup.event(loading("executor-1", "warm-up"))
    clock.now_s += 5
    startup.event(ProcessEvent("executor-1", EventKind.READY))
    assert startup.summary() == "Up after 48 s: starting Python 30 s, a first request 5 s"


def test_a_start_after_a_crash_counts_anew() -> None:
    clock, screen = Clock(), Screen()
    startup = started(clock, screen)
    startup.event(ProcessEvent("executor-0", EventKind.STARTING))
    clock.now_s += 4
    startup.event(ProcessEvent("executor-0", EventKind.READY))
    assert startup.summary() == "Up after 17 s: starting Python 4 s"


def test_what_a_process_and_its_supervisor_both_say_is_said_once() -> None:
    written = io.StringIO()
    progress = PlainProgress(Console(file=written, width=100))
    progress.event(ProcessEvent("executor-0", EventKind.PROGRESS, "stopped"))
    progress.event(ProcessEvent("executor-0", EventKind.STOPPED))
    progress.event(ProcessEvent("executor-0", EventKind.CRASHED, "killed by SIGKILL"))
    lines = [line.split("] ")[1] for line in written.getvalue().splitlines()]
    assert lines == ["executor-0 stopped", "executor-0 crashed: killed by SIGKILL"]
