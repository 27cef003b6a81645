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


OTHERS = """\
apiVersion: v1
kind: Secret
metadata: {name: keys}
---
apiVersion: superinfer.dev/v1alpha1
kind: ChipletPool
metadata: {name: stub}
"""


def test_documents_of_other_kinds_are_skipped_and_counted(superinfer: Run) -> None:
    text = f"{OTHERS}---\n{LONG}"
    done = superinfer("contract", "check", stdin=text)
    assert done.exit_code == 0
    assert "2 documents of other kinds skipped" in done.stdout
    assert json.loads(superinfer("contract", "check", "-o", "json", stdin=text).stdout)["skipped"] == 2
    converted = superinfer("contract", "convert", stdin=text)
    assert [d["kind"] for d in yaml.safe_load_all(converted.stdout)] == ["SLOContract"]
    assert "2 documents of other kinds skipped" in converted.stderr


def test_nothing_but_other_kinds_is_no_good_check(superinfer: Run) -> None:
    done = superinfer("contract", "check", stdin=OTHERS)
    assert done.exit_code == 1
    assert "holds no contract" in done.stdout


@pytest.mark.parametrize(
    "typo",
    [
        ("kind: SLOContract", "kind: SLOContrct"),
        ("kind: SLOContract", "kind: Contract"),
        ("superinfer.dev/v1alpha1", "superinfer.io/v1alpha1"),
        ("kind: SLOContract\n", ""),
    ],
    ids=["kind", "another kind of the group", "group", "no kind"],
)
def test_a_mistyped_contract_is_an_error_and_not_skipped(superinfer: Run, typo: tuple[str, str]) -> None:
    done = superinfer("contract", "check", "-o", "json", stdin=LONG.replace(*typo))
    assert done.exit_code == 1
    answer = json.loads(done.stdout)
    assert answer["skipped"] == 0
    assert answer["contracts"][0]["problems"]


def test_the_list_kubectl_writes_is_read_item_by_item(superinfer: Run) -> None:
    items = [yaml.safe_load(LONG), yaml.safe_load(CHILD)]
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    done = superinfer("contract", "check", "-o", "json", stdin=text)
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)["contracts"]) == 2


def test_one_bad_document_hides_no_other(superinfer: Run) -> None:
    falls = "spec: {onInfeasible: Fallback, fallbackRef: {name: "
    documents = [
        LONG.replace("Gold", "Golden").replace("checkout", "bad"),
        "a: [",
        LONG,
        LONG.replace("tier: Gold", "tier: Silver"),
        CHILD.replace("maxJitterMs: 50", "objectives: [{metric: TTFT, percentile: 99, targetMs: 900}]"),
        LONG.replace("checkout", "one").replace("spec: {", f"{falls}two}}, "),
        LONG.replace("checkout", "two").replace("spec: {", f"{falls}one}}, "),
    ]
    done = superinfer("contract", "check", "-o", "json", stdin="\n---\n".join(documents))
    assert done.exit_code == 1
    problems = [p for report in json.loads(done.stdout)["contracts"] for p in report["problems"]]
    assert {p["field"] for p in problems} >= {"document 1: spec.tier"}
    assert any(p["field"].startswith("document 2: line ") for p in problems)
    kinds = {p["kind"] for p in problems}
    assert kinds == {"InvalidSpec", "DuplicateServiceID", "LooserThanParent", "FallbackCycle"}


def test_a_message_about_a_later_document_names_its_line_in_the_file(superinfer: Run) -> None:
    done = superinfer("contract", "check", "-o", "json", stdin=f"{LONG}---\na: b: c\n")
    (bad,) = [r for r in json.loads(done.stdout)["contracts"] if r["problems"]]
    assert bad["problems"][0]["field"].startswith(f"document 2: line {LONG.count(chr(10)) + 2},")


def test_a_fallback_in_a_file_that_was_not_given_is_found(superinfer: Run, tmp_path: Path) -> None:
    gold, silver = tmp_path / "gold.yaml", tmp_path / "silver.yaml"
    gold.write_text(LONG.replace("spec: {", "spec: {onInfeasible: Fallback, fallbackRef: {name: browse}, "))
    alone = superinfer("contract", "check", str(gold), "-o", "json")
    assert alone.exit_code == 1
    assert "give that file or its directory" in json.loads(alone.stdout)["contracts"][0]["problems"][0]["fix"]
    silver.write_text(LONG.replace("checkout", "browse"))
    fix = json.loads(superinfer("contract", "check", str(gold), "-o", "json").stdout)["contracts"][0]
    assert str(silver) in fix["problems"][0]["fix"]
    assert f"superinfer contract check {tmp_path}" in fix["problems"][0]["fix"]
    assert superinfer("contract", "check", str(tmp_path)).exit_code == 0


@pytest.mark.parametrize("kind", ["[1]", "{a: b}", "7", "null"])
def test_a_kind_that_is_no_word_is_a_problem_of_its_document(
    superinfer: Run, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "a.yaml").write_text(f"kind: {kind}\nmetadata: {{name: a}}\n")
    done = superinfer("contract", "check", str(tmp_path))
    assert done.exit_code == 1
    assert "kind" in done.output
