import threading

import pytest

from superinfer_executor.__main__ import main


def test_a_hook_waits_until_the_sidecar_has_drained(tmp_path):
    drained = tmp_path / "drained"
    codes = []
    waiting = threading.Thread(
        target=lambda: codes.append(main(["wait-drained", "--file", str(drained), "--timeout-s", "60"]))
    )
    waiting.start()
    assert codes == []
    drained.touch()
    waiting.join(30)
    assert codes == [0]


def test_a_hook_does_not_wait_for_ever(tmp_path):
    assert main(["wait-drained", "--file", str(tmp_path / "drained"), "--timeout-s", "0.05"]) == 1


def test_a_hook_without_a_file_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["wait-drained"])
    assert "--file" in capsys.readouterr().err
