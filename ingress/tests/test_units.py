"""Invariants of the parts that are pure: bodies, the ledger, keys, files, errors, selection of a refusal."""

import errno
import io
import json
import math
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_core.refusal import HTTP_STATUS, Refusal, RefusalCode
from superinfer_ingress.config import Config, LimitSettings, load_config
from superinfer_ingress.contracts.files import ContractFiles
from superinfer_ingress.contracts.keys import KeyRing, KeysInvalid, add_key, load_keys, new_key, scrypt_entry
from superinfer_ingress.http.body import parse_body
from superinfer_ingress.http.errors import Refused, error_body, error_event, error_headers
from superinfer_ingress.ledger import LedgerBudget, RequestLedger, Verdict
from superinfer_ingress.lines import LineSink
from superinfer_ingress.placement import better_of

LIMITS = LimitSettings()
ROOT = Path(__file__).parents[2]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
bodies = (
    st.binary()
    | json_values.map(lambda v: json.dumps(v).encode())
    | st.dictionaries(
        st.sampled_from(["model", "stream", "n", "max_tokens", "max_completion_tokens", "messages"]),
        json_values,
    ).map(lambda v: json.dumps(v).encode())
)


@given(bodies)
def test_any_body_is_understood_or_refused_with_a_short_reason(raw):
    try:
        body = parse_body(raw, LIMITS)
    except Refused as error:
        refusal = error.refusal
    else:
        assert body.raw is raw
        assert 1 <= body.choices <= 128
        assert json.loads(raw)["model"] == body.model
        return
    assert refusal.code is RefusalCode.INVALID_REQUEST
    assert 0 < len(refusal.message) < 1000
    json.loads(error_body(refusal))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=40), st.data())
def test_the_ledger_delivers_every_token_once_however_often_it_is_sent(groups, data):
    """Groups are sent, sent again, and sent with a gap; what is delivered is exactly what was generated."""
    budget = LedgerBudget(10**6)
    ledger = RequestLedger(budget)
    generated: dict[int, int] = {}
    delivered: dict[int, list[int]] = {}
    sent: list[tuple[int, int, list[int]]] = []
    for choice, size in groups:
        first = generated.get(choice, 0)
        ids = [choice * 1000 + first + i for i in range(size)]
        generated[choice] = first + size
        sent.append((choice, first, ids))
        again = data.draw(st.sampled_from(sent))
        for one_choice, one_first, one_ids in (sent[-1], again):
            if ledger.record_tokens(one_choice, one_first, one_ids, 1.0) is Verdict.DELIVER:
                delivered.setdefault(one_choice, []).extend(one_ids)
        ahead = ledger.record_tokens(choice, generated[choice] + 1, [9], 1.0)
        assert ahead is Verdict.GAP
    for choice, count in generated.items():
        assert delivered[choice] == [choice * 1000 + i for i in range(count)]
    replay = {}
    for group in ledger.groups():
        assert group.first_token == len(replay.setdefault(group.choice, []))
        replay[group.choice].extend(group.token_ids)
    assert replay == delivered
    assert budget.held_tokens == sum(generated.values())
    ledger.close()
    assert budget.held_tokens == 0


def test_a_ledger_over_its_budget_keeps_numbers_and_gives_up_ids():
    budget = LedgerBudget(10)
    ledger = RequestLedger(budget)
    assert ledger.record_tokens(0, 0, range(8), 0.0) is Verdict.DELIVER
    assert ledger.record_tokens(0, 8, range(8), 1.0) is Verdict.DELIVER
    assert (ledger.resumable, budget.held_tokens, ledger.tokens) == (False, 0, 16)
    assert ledger.record_tokens(0, 8, range(8), 2.0) is Verdict.DUPLICATE
    assert ledger.groups() == []


def test_itl_and_jitter_are_over_the_gaps_of_one_choice():
    ledger = RequestLedger(LedgerBudget(100))
    for number, at_ms in enumerate((100.0, 110.0, 150.0, 160.0)):
        ledger.record_tokens(0, number, [number], at_ms)
    (choice,) = ledger.choices
    assert choice.itl_ms == 20.0
    assert choice.jitter_ms == 30.0
    assert ledger.first_ms == 100.0


@given(
    st.sampled_from(list(RefusalCode)),
    st.text(max_size=50),
    st.none() | st.floats(),
    st.none() | st.floats(),
)
def test_any_refusal_becomes_a_well_formed_error(code, message, predicted_ms, retry_ms):
    refusal = Refusal(
        code,
        message,
        metric="TTFT",
        predicted_ms=predicted_ms,
        required_ms=predicted_ms,
        retry_after_ms=retry_ms,
    )
    error = json.loads(error_body(refusal))["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert error_event(refusal).startswith(b"data: {")
    headers = dict(error_headers(refusal))
    if b"retry-after" in headers:
        assert 1 <= int(headers[b"retry-after"]) <= 3600
        assert HTTP_STATUS[code] in (429, 503)
    else:
        assert HTTP_STATUS[code] not in (429, 503)


@given(st.sampled_from(list(RefusalCode)), st.sampled_from(list(RefusalCode)))
def test_the_better_refusal_does_not_depend_on_the_order_of_asking(one, two):
    first, second = Refusal(one, "first"), Refusal(two, "second")
    assert better_of(first, second).code is better_of(second, first).code


def test_a_full_executor_is_better_news_than_an_impossible_one():
    full, never = Refusal(RefusalCode.SATURATED, ""), Refusal(RefusalCode.SLO_INFEASIBLE, "")
    assert better_of(never, full) is full


async def test_keys_of_both_kinds_are_found_and_nothing_else(tmp_path):
    path = tmp_path / "keys.yaml"
    plain, entry = new_key("made", namespaces=("shop",), secret="keys", admin=True)
    add_key(path, entry)
    add_key(path, scrypt_entry("chosen", "team1", "correct horse", namespaces=("bank",)))
    ring = load_keys(path)
    made = await ring.find(plain)
    assert made is not None
    assert (made.name, made.namespaces, made.secret, made.admin) == ("made", ("shop",), "keys", True)
    for _ in range(2):  # the second time from memory
        chosen = await ring.find("team1.correct horse")
        assert chosen is not None
        assert (chosen.name, chosen.admin) == ("chosen", False)
    for wrong in ("", plain[:-1], "team1.wrong", "team1", "correct horse", "\udcff", "x" * 10_000):
        assert await ring.find(wrong) is None


def test_a_keys_file_that_is_wrong_says_where_and_never_what(tmp_path):
    path = tmp_path / "keys.yaml"
    secret = "a" * 63 + "Z"
    for text in (f"keys: [{{name: n, sha256: {secret}}}]", f"keys: [{secret}", f"keys: {secret}"):
        path.write_text(text)
        with pytest.raises(KeysInvalid) as caught:
            load_keys(path)
        assert "keys.yaml" in str(caught.value)
        assert secret not in str(caught.value)
    assert len(KeyRing()) == 0


def test_editing_a_file_does_not_make_its_contracts_younger(tmp_path, kit):
    files = ContractFiles(tmp_path, default_namespace="default")
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(kit.contract("one")))
    (before,), _ = files.read()
    path.write_text(yaml.safe_dump_all([kit.contract("one", tier="Gold"), kit.contract("two")]))
    after = {c.stored.name: c.stored for c in files.read()[0]}
    assert after["one"].created == before.stored.created
    assert after["two"].created >= before.stored.created


@settings(max_examples=30)
@given(st.text(st.characters(codec="ascii"), max_size=200))
def test_a_directory_holds_any_text_without_failing(text):
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "x.yaml").write_text(text)
        contracts, _problems = ContractFiles(Path(directory), default_namespace="default").read()
        assert all(c.stored.name for c in contracts)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)  # a terabyte of nothing: it takes no room on the disk


@pytest.mark.parametrize("becomes", [_endless, _pipe, _huge], ids=["endless", "a pipe", "a terabyte"])
def test_a_file_that_cannot_be_read_to_its_end_is_named_and_holds_nothing_up(tmp_path, kit, becomes):
    files = ContractFiles(tmp_path, default_namespace="default")
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(kit.contract("one")))
    files.read()
    path.unlink()
    becomes(path)
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(kit.contract("two")))
    contracts, problems = files.read()
    assert {contract.stored.name for contract in contracts} == {"one", "two"}
    assert [problem.file for problem in problems] == ["a.yaml"]


def test_a_long_name_fits_a_file(tmp_path, kit):
    files = ContractFiles(tmp_path, default_namespace="default")
    document = kit.contract("n" * 200)
    files.write("s" * 63, "n" * 200, document)
    assert len(files.read()[0]) == 1
    files.delete("s" * 63, "n" * 200)
    assert files.read()[0] == []


def test_the_documented_example_says_the_defaults():
    example = load_config(ROOT / "docs" / "ingress.example.yaml")
    assert example.model_copy(update={"executors": ()}) == Config()
    written = yaml.safe_load((ROOT / "docs" / "ingress.example.yaml").read_text())
    assert set(written) == {field.alias for field in Config.model_fields.values()}
    assert set(written["limits"]) == {field.alias for field in LimitSettings.model_fields.values()}


def test_figures_that_are_not_finite_are_left_out():
    error = json.loads(
        error_body(Refusal(RefusalCode.SLO_INFEASIBLE, "", metric="E2E", predicted_ms=math.inf))
    )
    assert "predicted_ms" not in error["error"]


async def test_a_full_disk_costs_log_lines_and_one_warning(caplog):
    class Disk(io.StringIO):
        full = True

        def flush(self):
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")

    disk = Disk()
    sink = LineSink(disk, close=False)
    for disk.full in (True, True, True, False):
        sink.add("a line")
        await sink.flushed()
    await sink.close()
    assert sink.dropped == 3
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "log lines are lost from now on",
        "log lines are written again; 3 were lost",
    ]


@given(st.floats(0.001, 3_600_000.0))
def test_the_tightest_target_a_client_hears_is_never_tighter_than_what_would_pass(tightest_ms):
    body = error_body(Refusal(RefusalCode.SLO_INFEASIBLE, "x", tightest_ms=tightest_ms))
    assert tightest_ms <= json.loads(body)["error"]["tightest_ms"] <= tightest_ms + 0.11
