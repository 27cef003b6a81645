"""The demo's contracts follow from the profile, and its record tells whether the story happened."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from superinfer.commands.demo import _load
from superinfer.demo.questions import report_of
from superinfer.demo.result import REQUEST_KEYS, Aim, Result, requests_from_log
from superinfer.demo.stage import meanwhile
from superinfer.demo.targets import FACTORS, contract_yaml, targets, unloaded_ttft_ms
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.parse import parse_contract
from superinfer_core.contract.resolution import resolve_contracts
from superinfer_core.prediction.profile import Profile, StepCoefficients, UnloadedItl, UnloadedTtft

PROFILE = Profile(
    model="m",
    engine="e",
    machine="x",
    dtype="float32",
    step_model=StepCoefficients(base_ms=60, per_decode_seq_ms=4, per_prefill_token_ms=2),
    max_num_seqs=2,
    max_step_tokens=2048,
    max_model_len=1024,
    unloaded_ttft=(UnloadedTtft(prompt_tokens=64, ttft_ms=200),),
    unloaded_itl=(UnloadedItl(seqs=1, itl_ms=60), UnloadedItl(seqs=2, itl_ms=65)),
)


def test_example_contracts_are_valid_together() -> None:
    documents = [yaml.safe_load(contract_yaml(PROFILE, name)) for name in FACTORS]
    resolution = resolve_contracts([StoredContract.of(parse_contract(document)) for document in documents])
    assert not resolution.problems
    assert set(resolution.effective) == {f"demo/{name}" for name in FACTORS}


def test_targets_are_the_stated_multiples_and_follow_a_slower_machine() -> None:
    ttft = targets(PROFILE, "gold")[0]
    assert ttft.target_ms == FACTORS["gold"].ttft * 200
    assert targets(PROFILE, "gold", slowness=2)[0].target_ms == 2 * ttft.target_ms


def test_the_report_is_too_long_for_gold_and_fits_the_model() -> None:
    promised = targets(PROFILE, "gold")[0].target_ms
    words = report_of(PROFILE, promised).split()
    assert unloaded_ttft_ms(PROFILE, len(words)) > promised
    assert len(words) < (PROFILE.max_model_len or 0) - 16


def test_the_record_has_the_agreed_keys_and_the_story_needs_every_aim(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    log.write_text(json.dumps({"id": "gold-1", "kept": True, "ttft_ms": 5, "request_id": "x"}) + "\n")
    result = Result("a machine", requests=requests_from_log(log))
    assert not result.told
    result.aims = [Aim("one", "it happens", 1, met=True), Aim("two", "it too", 0, met=False)]
    assert not result.told
    result.aims.pop()
    assert result.told
    result.write(tmp_path / "deep" / "result.json")
    document = json.loads((tmp_path / "deep" / "result.json").read_text())
    assert set(document) == {"commit", "machine", "aims", "requests"}
    assert set(document["requests"][0]) == set(REQUEST_KEYS)
    assert set(document["aims"][0]) == {"name", "aim", "got", "met"}


@pytest.mark.parametrize(
    ("mape", "kept"), [(None, True), (0.1, True), (0.43, False)], ids=["unknown", "steady", "busy"]
)
def test_a_measurement_of_a_busy_machine_is_not_used_again(
    tmp_path: Path, mape: float | None, *, kept: bool
) -> None:
    file = tmp_path / "kept.json"
    file.write_text(PROFILE.model_copy(update={"mape": mape}).dump_json())
    assert (_load(file) is not None) is kept


async def test_a_story_that_is_broken_off_leaves_no_task() -> None:
    ended = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def part() -> None:
        async with meanwhile(endless(), endless()):
            await asyncio.sleep(0)
            raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        await part()
    assert ended == [True, True]
    assert asyncio.all_tasks() == {asyncio.current_task()}
