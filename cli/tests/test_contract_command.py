"""`superinfer contract`: everything wrong is named with a fix; exit codes tell good from bad."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

LONG = """\
apiVersion: superinfer.dev/v1alpha1
kind: SLOContract
metadata: {name: checkout, namespace: shop}
spec: {tier: Gold, objectives: [{metric: TTFT, percentile: 99, targetMs: 300}]}
"""
CHILD = """\
apiVersion: superinfer.dev/v1alpha1
kind: SLOContract
metadata: {name: checkout-chat, namespace: shop}
spec: {maxJitterMs: 50}
"""
SHORT = """\
service_id: search
slo:
  latency:
    p95_ms: 2000
    p99_ms: 4000
availability: 99.9
"""
Run = Callable[..., Any]


def test_good_contracts_pass_from_a_directory(superinfer: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(LONG)
    (tmp_path / "b.yaml").write_text(SHORT)
    (tmp_path / "notes.txt").write_text("not a contract")
    done = superinfer("contract", "check", str(tmp_path), "-o", "json")
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert answer["ok"]
    assert {c["contract"] for c in answer["contracts"]} == {"shop/checkout", "default/search"}


def test_every_mistake_is_named_with_field_and_fix(superinfer: Run) -> None:
    text = LONG.replace("Gold", "Golden").replace("targetMs: 300", 'targetMs: "300ms"')
    done = superinfer("contract", "check", "-o", "json", stdin=text)
    assert done.exit_code == 1
    (report,) = json.loads(done.stdout)["contracts"]
    assert {p["field"] for p in report["problems"]} == {"spec.tier", "spec.objectives[0].targetMs"}
    assert all(p["fix"] for p in report["problems"])


def test_of_two_with_one_id_the_first_given_keeps_it(superinfer: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(LONG)
    (tmp_path / "b.yaml").write_text(
        LONG.replace("name: checkout", "name: other").replace("{tier", "{serviceID: checkout, tier")
    )
    done = superinfer("contract", "check", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), "-o", "json")
    assert done.exit_code == 1
    first, second = json.loads(done.stdout)["contracts"]
    assert first["in_effect"]
    assert not second["in_effect"]
    assert second["problems"][0]["other"] == "shop/checkout"
    assert second["file"] == str(tmp_path / "b.yaml")


@pytest.mark.parametrize(
    ("text", "code"),
    [("{", 1), ("", 1), ("[1, 2]", 1), ("a: &a [*a]", 1), ("\x00", 1), ("x" * 100_000, 1)],
    ids=["truncated", "empty", "a list", "an alias", "a control character", "a hundred kilobytes"],
)
def test_what_is_no_contract_is_a_problem_and_not_a_crash(superinfer: Run, text: str, code: int) -> None:
    done = superinfer("contract", "check", stdin=text)
    assert done.exit_code == code
    assert done.exception is None or isinstance(done.exception, SystemExit)


def test_a_missing_file_is_exit_code_2(superinfer: Run, tmp_path: Path) -> None:
    assert superinfer("contract", "check", str(tmp_path / "none.yaml")).exit_code == 2
    assert superinfer("contract", "check", str(tmp_path)).exit_code == 2


def test_short_to_long_and_back_is_the_same_contract(superinfer: Run) -> None:
    long = superinfer("contract", "convert", stdin=SHORT)
    assert long.exit_code == 0
    assert yaml.safe_load(long.stdout)["kind"] == "SLOContract"
    short = superinfer("contract", "convert", "--to", "short", stdin=long.stdout)
    assert short.exit_code == 0
    assert yaml.safe_load(short.stdout) == yaml.safe_load(SHORT)


def test_what_does_not_fit_the_short_form_is_named(superinfer: Run) -> None:
    done = superinfer("contract", "convert", "--to", "short", stdin=LONG)
    assert done.exit_code == 1
    assert "spec.tier" in done.stderr
    assert done.stdout == ""


def test_explain_shows_which_contract_states_what(superinfer: Run) -> None:
    done = superinfer("contract", "explain", "checkout-chat", "-", "-o", "json", stdin=f"{LONG}---\n{CHILD}")
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    origins = {row["field"]: row["origin"] for row in answer["fields"]}
    assert origins["tier"] == "shop/checkout"
    assert origins["maxJitterMs"] == "shop/checkout-chat"
    assert answer["lineage"] == ["shop/checkout-chat", "shop/checkout"]


def test_explain_of_an_unknown_contract_lists_those_there_are(superinfer: Run) -> None:
    done = superinfer("contract", "explain", "nope", "-", stdin=LONG)
    assert done.exit_code == 2
    assert "shop/checkout" in done.stderr


def test_targets_no_idle_engine_meets_are_found_with_a_profile(superinfer: Run, tmp_path: Path) -> None:
    profile = {
        "model": "m", "engine": "e", "machine": "x", "dtype": "float32", "max_num_seqs": 2,
        "max_step_tokens": 2048, "step_model": {"base_ms": 400, "per_prefill_token_ms": 1},
    }  # fmt: skip
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile))
    done = superinfer("contract", "check", "--profile", str(path), "-o", "json", stdin=LONG)
    assert done.exit_code == 1
    (report,) = json.loads(done.stdout)["contracts"]
    assert report["problems"][0]["kind"] == "TargetsUnreachable"
