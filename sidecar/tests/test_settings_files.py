"""Files that the sidecar's command line names: what cannot be used ends the start, and says which and why."""

from pathlib import Path

import pytest

from superinfer_core.small_input import MOST_BYTES
from superinfer_sidecar.__main__ import main

BAD = [
    ("no profile there", "--profile", None, "No such file"),
    ("no profile in it", "--profile", b"{}", "Field required"),
    ("a profile that is not text", "--profile", b"\xff\xfe", "utf-8"),
    ("a log as profile", "--profile", b"x" * (MOST_BYTES + 1), "is it the right file?"),
    ("no policy there", "--policy", None, "No such file"),
    ("a policy that is not YAML", "--policy", b"a: [", "is neither YAML nor JSON"),
    ("a policy nested without end", "--policy", b"[" * 50_000, "nested deeper"),
    ("a policy with an urgency that is none", "--policy", b"urgency: 7", "urgency"),
    ("a log as policy", "--policy", b"x" * (MOST_BYTES + 1), "is it the right file?"),
]


@pytest.mark.parametrize(
    ("option", "content", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_a_file_that_cannot_be_used_ends_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, content: bytes | None, words: str
) -> None:
    file = tmp_path / "given"
    if content is not None:
        file.write_bytes(content)
    listen = f"unix:{tmp_path}/sidecar.sock"
    named = ["--listen", listen, "--engine-socket", str(tmp_path / "engine.sock"), "--executor-name", "e"]
    assert main([*named, option, str(file)]) == 2
    told = capsys.readouterr().err
    assert f"{option} {file}: " in told
    assert words in told
    assert len(told) < 1000
