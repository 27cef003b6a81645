"""The command line: flags, the environment, and what is refused."""

import argparse

import pytest

from superinfer_operator.__main__ import main
from superinfer_operator.hosting.command import add_arguments, run_command


def command(*flags):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run_command(parser.parse_args(flags))


def test_flags_become_settings():
    made = command(
        "--namespace", "si", "--tls", "off", "--pull-secrets", "a,b", "--code-image", "-", "--port", "0"
    )
    assert made.settings.namespace == "si"
    assert made.settings.pods.tls is False
    assert made.settings.pods.pull_secrets == ("a", "b")
    assert made.settings.pods.code_image == ""
    assert made.port == 0


def test_secrets_are_everywhere_or_where_it_is_said_and_in_its_own_namespace():
    assert command("--namespace", "si").settings.secret_namespaces is None
    made = command("--namespace", "si", "--secret-namespaces", "shop, bank").settings
    assert made.secret_namespaces == made.pods.tls_namespaces == {"si", "shop", "bank"}
    elsewhere = command("--namespace", "si", "--secret-namespaces", "shop", "--certificates", "off").settings
    assert elsewhere.pods.tls_namespaces is None, "pools anywhere may bring certificates of their own"


def test_a_pod_keeps_its_candidate_s_name_and_a_process_outside_of_one_never_shares_it(monkeypatch):
    monkeypatch.delenv("POD_UID", raising=False)
    one, two = (command("--namespace", "si").settings.candidate for _ in range(2))
    assert one != two
    monkeypatch.setenv("POD_NAME", "operator-0")
    monkeypatch.setenv("POD_UID", "u1")
    one, two = (command("--namespace", "si").settings.candidate for _ in range(2))
    assert one == two == "operator-0_u1"
    assert command("--namespace", "si", "--elect", "off").settings.candidate == ""


def test_the_environment_stands_in_for_flags_and_a_flag_wins(monkeypatch):
    monkeypatch.setenv("SUPERINFER_OPERATOR_STUB_IMAGE", "registry/stub:1")
    monkeypatch.setenv("POD_NAMESPACE", "si")
    assert command().settings.pods.stub_image == "registry/stub:1"
    assert command().settings.namespace == "si"
    assert command("--stub-image", "other").settings.pods.stub_image == "other"


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        pytest.param((), "--namespace", id="no namespace"),
        pytest.param(
            ("--namespace", "x", "--node-grace-s", "soon"), "--node-grace-s", id="text for a number"
        ),
        pytest.param(("--namespace", "x", "--hold-down-s", "-1"), "--hold-down-s", id="a negative time"),
        pytest.param(("--namespace", "x", "--port", "nan"), "--port", id="not a number"),
    ],
)
def test_what_cannot_be_used_is_named(monkeypatch, flags, want):
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    with pytest.raises(ValueError, match=want):
        command(*flags)


@pytest.mark.parametrize("name", ["run", "crds", "cleanup"])
def test_every_command_explains_itself(capsys, name):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert "options:" in capsys.readouterr().out


def test_without_a_cluster_run_says_what_to_do(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["run", "--namespace", "x", "--kubeconfig", str(tmp_path / "none")]) == 2
    assert "KUBECONFIG" in capsys.readouterr().err
