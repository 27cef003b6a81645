"""A desk without a wire: ports are fakes that remember; time is a number."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_proto.v1 import engine_pb2, sidecar_pb2, slo_pb2, work_pb2
from superinfer_sidecar.book import Book, Bounds
from superinfer_sidecar.desk import Desk
from superinfer_sidecar.planner import Planner
from superinfer_sidecar.settings import SidecarSettings


@dataclass(eq=False)
class FakeEngine:
    """Remembers what it was given; answers when it is told to."""

    max_num_seqs: int = 2
    renders: list[str] = field(default_factory=list)
    holds: dict[str, work_pb2.Submit] = field(default_factory=dict)
    cancelled: list[tuple[str, int]] = field(default_factory=list)

    @property
    def info(self) -> engine_pb2.EngineInfo:
        return engine_pb2.EngineInfo(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=512,
            kv_total_tokens=1 << 16,
            generation=str(id(self)),
        )

    def render(self, request_id: str, path: str, body: bytes) -> None:
        self.renders.append(request_id)

    def submit(self, submit: work_pb2.Submit) -> None:
        held = self.holds.get(submit.request_id)
        assert held is None or held.attempt < submit.attempt
        self.holds[submit.request_id] = submit

    def cancel(self, request_id: str, attempt: int) -> None:
        self.cancelled.append((request_id, attempt))
        self.holds.pop(request_id, None)


@dataclass(eq=False)
class FakeIngress:
    decisions: list[sidecar_pb2.Decision] = field(default_factory=list)
    outputs: list[work_pb2.Output] = field(default_factory=list)
    begun_attempts: list[tuple[str, int]] = field(default_factory=list)

    def begun(self, request_id: str, attempt: int) -> None:
        self.begun_attempts.append((request_id, attempt))

    def decide(self, decision: sidecar_pb2.Decision) -> None:
        self.decisions.append(decision)

    def frame(self, frame: work_pb2.Frame) -> None:
        self.outputs.extend(frame.outputs)


@dataclass
class Room:
    """A desk, its clock and a fake engine."""

    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    max_queued: int = 50
    enforce: bool = True
    pass_through: bool = False
    learn_overhead: bool = True
    profile: Any = None
    now_ms: float = 1000.0

    def __post_init__(self) -> None:
        given = SidecarSettings(
            listen="unix:x",
            engine_socket=Path("x"),
            executor_name="x",
            enforce=self.enforce,
            pass_through=self.pass_through,
        )
        planner = Planner(self.policy, self.profile, learn_overhead=self.learn_overhead)
        self.desk = Desk(given, planner, Book(Bounds(self.max_queued, 10_000)), lambda: self.now_ms)
        self.engine = FakeEngine()
        self.ingress = FakeIngress()
        self.desk.engine_up(self.engine)

    def send(
        self,
        request_id: str,
        slo: slo_pb2.RequestSlo,
        *,
        attempt: int = 1,
        tokens: int = 50,
        choices: int = 1,
    ) -> None:
        body = b"x" * 10
        submit = work_pb2.Submit(request_id=request_id, attempt=attempt, path="/p", body=body, slo=slo)
        self.desk.submit([submit], self.ingress)
        self.render(tokens=tokens, choices=choices)

    def render(self, *, tokens: int = 50, choices: int = 1) -> None:
        ids, self.engine.renders = self.engine.renders, []
        self.desk.rendered(
            engine_pb2.Rendered(request_id=i, total_prompt_tokens=10, max_tokens=tokens, choices=choices)
            for i in ids
        )

    def step(self, tokens: dict[str, int], *, final: tuple[str, ...] = (), **facts: Any) -> list[Any]:
        frame = work_pb2.Frame(facts=work_pb2.StepFacts(step_ms=5.0, decode_seqs=len(tokens), **facts))
        for request_id, count in tokens.items():
            submit = self.engine.holds.get(request_id)
            attempt = submit.attempt if submit else 1
            output = frame.outputs.add(request_id=request_id, attempt=attempt, token_ids=range(count))
            if request_id in final:
                output.final = True
                self.engine.holds.pop(request_id, None)
        owners = self.desk.frame(frame)
        self.desk.dispatch()
        return owners

    def final_codes(self) -> dict[str, str]:
        return {output.request_id: output.error.code for output in self.ingress.outputs if output.final}


def gold(**fields: Any) -> slo_pb2.RequestSlo:
    return slo_pb2.RequestSlo(
        tier=slo_pb2.TIER_GOLD, contract="t/g", contract_holds=True, budget_left=1, **fields
    )


def bronze(**fields: Any) -> slo_pb2.RequestSlo:
    return slo_pb2.RequestSlo(
        tier=slo_pb2.TIER_BRONZE, contract="t/b", contract_holds=True, budget_left=1, **fields
    )


def full_of_bronze(room: Room) -> None:
    for name in ("b0", "b1"):
        room.send(name, bronze(ttft_target_ms=60_000.0), tokens=500)
    room.step({"b0": 1, "b1": 1})
