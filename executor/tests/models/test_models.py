"""Model directories: whole or absent, the same wherever they are made, usable for the whole chat surface."""

import json
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from superinfer_executor.models import ModelDirectoryOccupied, default_model_dir, main, prepare_tiny
from superinfer_executor.models.chat_templates import SMOLLM2_SYSTEM_PROMPT, chatml_with_tools
from superinfer_executor.models.directory import MARKER_NAME, prepare_directory
from superinfer_executor.models.smollm2 import _rotary_halves
from superinfer_executor.models.tiny import VOCAB, byte_vocabulary

TEXTS = [
    "Hello, world 1234",
    "日本語 emoji 🎉\n\ttab",
    '{"a": [1, 2.5, null]}',
    "<|im_start|>user\nhi<|im_end|>\n",
]


def digests(directory: Path) -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_tiny(tmp_path_factory.mktemp("models") / "tiny")


def test_two_machines_make_the_same_model(tiny: Path, tmp_path: Path) -> None:
    assert digests(prepare_tiny(tmp_path / "other")) == digests(tiny)


def test_a_second_call_changes_nothing(tiny: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny.iterdir()}
    prepare_tiny(tiny)
    assert {path: path.stat().st_mtime_ns for path in tiny.iterdir()} == before


def test_everybody_may_read_it(tiny: Path) -> None:
    assert stat.S_IMODE(tiny.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in tiny.iterdir()} == {0o644}


def test_many_at_once_make_it_once(tmp_path: Path) -> None:
    built = []

    def build(directory: Path) -> None:
        built.append(directory)
        (directory / "weights").write_text("x")

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: prepare_directory(tmp_path / "m", {"v": 1}, build), range(8)))
    assert len(built) == 1
    assert sum(fresh for _, fresh in results) == 1
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [MARKER_NAME, "weights"]


def test_a_build_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def build(directory: Path) -> None:
        (directory / "half").write_text("x")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        prepare_directory(tmp_path / "m", {"v": 1}, build)
    assert not (tmp_path / "m").exists()
    assert not list(tmp_path.glob(".m.*.partial"))


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    for name in (".m.17.partial", ".m.18.outdated", ".other.17.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").touch()
    prepare_directory(tmp_path / "m", {"v": 1}, lambda d: (d / "weights").touch())
    assert sorted(p.name for p in tmp_path.iterdir()) == [".m.lock", ".other.17.partial", "m"]


TERMINATED = """
import os, signal, sys, time
from pathlib import Path
from superinfer_executor.models import command, directory

def build(scratch):
    (scratch / "half").touch()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

command.PREPARE["tiny"] = lambda out: directory.prepare_directory(out, {"v": 1}, build)
sys.exit(command.main(["tiny", "--out", sys.argv[1]]))
"""


def test_a_build_that_is_terminated_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TERMINATED, str(tmp_path / "m")], check=False, timeout=60)
    assert done.returncode == 143
    assert [p.name for p in tmp_path.iterdir()] == [".m.lock"]


def test_a_newer_recipe_replaces_the_older_directory(tmp_path: Path) -> None:
    for version in (1, 2):
        directory, fresh = prepare_directory(
            tmp_path / "m", {"v": version}, lambda d, v=version: (d / f"v{v}").write_text("x") and None
        )
        assert fresh
    assert sorted(path.name for path in directory.iterdir()) == [MARKER_NAME, "v2"]


def test_what_we_did_not_make_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ModelDirectoryOccupied, match="choose another"):
        prepare_tiny(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "precious"


@pytest.mark.parametrize("text", TEXTS)
def test_the_tiny_tokenizer_gives_text_back(tiny: Path, text: str) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_one_byte_is_one_token_and_every_token_decodes(tiny: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    assert len(tokenizer.encode("x" * 400).ids) == 400
    assert len(byte_vocabulary()) == tokenizer.get_vocab_size() == VOCAB
    assert all(tokenizer.decode([token], skip_special_tokens=False) for token in range(VOCAB))


def rendered(template: str, messages: list[dict[str, Any]], **more: Any) -> str:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(template).render(messages=messages, **more)


USER = {"role": "user", "content": "2 + 2?"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param(
            [USER],
            f"<|im_start|>system\n{SMOLLM2_SYSTEM_PROMPT}<|im_end|>\n"
            "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n",
            id="the model's own system prompt where there is none",
        ),
        pytest.param(
            [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "4"}, USER],
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n"
            "<|im_start|>assistant\n4<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n",
            id="a conversation",
        ),
    ],
)
def test_smollm2_is_prompted_as_it_was_trained(messages: list[dict[str, Any]], expected: str) -> None:
    template = chatml_with_tools(SMOLLM2_SYSTEM_PROMPT)
    assert rendered(template, messages, add_generation_prompt=True) == expected


def test_tools_and_their_calls_are_told_in_the_hermes_form() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    text = rendered(
        chatml_with_tools(None),
        [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "4"},
        ],
        tools=[{"type": "function", "function": {"name": "add", "parameters": {}}}],
        add_generation_prompt=True,
    )
    assert '<tools>\n{"type": "function", "function": {"name": "add", "parameters": {}}}\n</tools>' in text
    assert '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>' in text
    assert "<tool_response>\n4\n</tool_response>" in text


def test_rotary_rows_go_from_pairs_to_halves() -> None:
    import numpy as np

    interleaved = np.arange(8).reshape(8, 1)  # two heads of four rows
    assert _rotary_halves(interleaved, 2).ravel().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_the_command_says_where_the_model_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiny", "--out", str(tmp_path / "t")]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"model": "tiny", "path": str(tmp_path / "t")}
    assert "ready after" in shown.err


def test_the_command_fails_without_a_trace_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["tiny", "--out", str(tmp_path)]) == 1
    assert "choose another --out" in capsys.readouterr().err


def test_models_are_kept_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_model_dir("tiny") == tmp_path / "superinfer" / "models" / "tiny"
