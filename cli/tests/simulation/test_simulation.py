"""The simulator: deterministic, conserves work, and shows what the product promises."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from superinfer.main import app
from superinfer.simulation.engine import EngineLimits
from superinfer.simulation.fleet import Fleet, FleetSettings, Run
from superinfer.simulation.summary import summarise
from superinfer.simulation.workload import Job, TraceInvalid, promise, read_trace, synthetic_trace
from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.policy import Order, SchedulingPolicy

MODEL = StepModel(5.0, 0.10, 0.0, 0.06, 0.0)


def jobs(count: int = 300, scale: float = 1.0, seed: int = 3) -> list[Job]:
    return promise(
        synthetic_trace(count, seed),
        seed=seed,
        unloaded_ttft_ms=lambda n: MODEL.prefill_ms(n, chunk_tokens=2048),
        unloaded_itl_ms=MODEL.step_ms(decode_seqs=1),
        rate_scale=scale,
    )


def run(order: Order, work: list[Job], **settings: object) -> Run:
    admission = order is Order.SLACK
    chosen = FleetSettings(truth=MODEL, admission=admission, **settings)  # type: ignore[arg-type]
    return Fleet(work, SchedulingPolicy(order=order), chosen).run()


@pytest.mark.parametrize("order", list(Order))
def test_everyone_admitted_is_served_to_the_last_token(order: Order) -> None:
    work = jobs(150, 1.5)
    result = run(order, work)
    assert set(result.outcomes) == {j.request_id for j in work}
    served = [o for o in result.outcomes.values() if o.admitted]
    assert all(o.last_ms is not None for o in served)
    assert result.tokens == sum(o.job.output_tokens for o in served)
    assert all(o.refusal for o in result.outcomes.values() if not o.admitted)


def test_the_same_seed_gives_the_same_run() -> None:
    a, b = (summarise([run(Order.SLACK, jobs(120, 1.5), noise=0.1)]) for _ in range(2))
    assert a == b


def test_under_overload_ours_keeps_its_promises_and_three_times_the_best_baseline() -> None:
    work = jobs(400, 1.7)
    figures = {o: summarise([run(o, work)]) for o in Order}
    ours = figures.pop(Order.SLACK)
    assert ours["goodput_rps"] >= 3 * max(f["goodput_rps"] for f in figures.values())
    for tier, least in (("gold", 0.98), ("silver", 0.98), ("bronze", 0.95)):
        t = ours["tiers"][tier]
        assert t["kept"] >= least * t["admitted"], tier


def test_a_burst_in_one_instant_is_admitted_only_as_far_as_it_is_kept() -> None:
    work = [replace(j, arrived_ms=0.0) for j in jobs(80)]
    outcomes = run(Order.SLACK, work).outcomes.values()
    assert 0 < sum(o.admitted for o in outcomes) < 80
    assert sum(o.kept for o in outcomes) >= 0.95 * sum(o.admitted for o in outcomes)


def test_a_full_kv_cache_costs_time_never_a_request() -> None:
    work = jobs(60, 2.0)
    most = max(j.prompt_tokens + j.output_tokens for j in work)
    result = run(Order.FCFS, work, limits=EngineLimits(8, 2048, most + 10))
    assert result.preempted > 0
    assert result.tokens == sum(j.output_tokens for j in work)


def test_a_fleet_uses_all_its_executors() -> None:
    result = run(Order.SLACK, jobs(200, 4.0), executors=4)
    assert {o.executor for o in result.outcomes.values() if o.admitted} == {0, 1, 2, 3}


def test_both_trace_forms_read_the_same(tmp_path: Path) -> None:
    table, lines = tmp_path / "t.csv", tmp_path / "t.jsonl"
    table.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,10,3\n0.0,7,2\n")
    lines.write_text(
        '{"timestamp": 500, "input_length": 10, "output_length": 3}\n'
        '{"timestamp": 0, "input_length": 7, "output_length": 2}\n'
    )
    assert read_trace(table) == read_trace(lines)
    assert [r.prompt_tokens for r in read_trace(table)] == [7, 10]


HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
GOOD = '{"timestamp": 0, "input_length": 7, "output_length": 2}\n'
BAD_TRACES = [
    ("empty", "t.csv", "", "no requests"),
    ("other columns", "t.csv", "a,b,c\n1,2,3\n", "request 1: has no arrived_at"),
    ("no number", "t.csv", HEADER + "nan,1,1\n", "request 1: arrived_at is 'nan'; write a number"),
    ("infinite", "t.csv", HEADER + "0,inf,1\n", "num_prefill_tokens is 'inf'"),
    ("below 0", "t.csv", HEADER + "0,1,1\n0,-4,1\n", "request 2: num_prefill_tokens is -4; write a whole"),
    ("half a token", "t.csv", HEADER + "0,1,1.5\n", "num_decode_tokens is 1.5; write a whole"),
    ("more tokens than any model has", "t.csv", HEADER + "0,1e12,1\n", "num_prefill_tokens is 1e+12"),
    ("a short row", "t.csv", HEADER + "0,1\n", "has no num_decode_tokens"),
    ("a row too wide to read", "t.csv", HEADER + '"' + "x\n" * 90_000, "cannot be read: field larger"),
    ("no line ends", "t.csv", "x" * 70_000, "a line has more than 65536 characters"),
    ("not JSON", "t.jsonl", GOOD + "{\n", "request 2: cannot be read"),
    ("nested without end", "t.jsonl", "[" * 60_000, "request 1: cannot be read"),
    ("a list", "t.jsonl", "[1, 2]\n", "is a list of 2 items, not fields timestamp"),
    ("text in place of a number", "t.jsonl", GOOD.replace("7", '"x"'), "input_length is 'x'"),
    ("a number without end", "t.jsonl", GOOD.replace("7", "9" * 500), "input_length is an integer of"),
]


@pytest.mark.parametrize(
    ("name", "text", "words"), [case[1:] for case in BAD_TRACES], ids=[case[0] for case in BAD_TRACES]
)
def test_a_trace_that_cannot_be_read_says_where(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(TraceInvalid) as invalid:
        read_trace(path)
    assert str(path) in str(invalid.value)
    assert words in str(invalid.value)


def test_no_more_of_a_trace_is_read_than_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(GOOD * 2 + "broken")
    assert len(read_trace(path, 2)) == 2


def test_the_command_answers_programs_and_people() -> None:
    runner = CliRunner()
    asked = ["simulate", "--requests", "60", "--load", "1.5"]
    programs = runner.invoke(app, [*asked, "--output", "json"])
    assert programs.exit_code == 0
    answer = json.loads(programs.stdout)
    assert answer["requests"] == 60
    assert set(answer["tiers"]) == {"gold", "silver", "bronze"}
    people = runner.invoke(app, asked)
    assert "of admitted" in people.stdout
    assert runner.invoke(app, ["simulate", "--trace", "/nowhere.csv"]).exit_code == 2


def test_a_simulation_says_how_far_it_is() -> None:
    heard: list[int] = []
    work = jobs(40)
    Fleet(work, SchedulingPolicy(), FleetSettings(truth=MODEL)).run(heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == len(work)
