"""What the documents name exists: files, modules, commands, options, targets, metrics, headers, variables."""

import importlib
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import typer

from superinfer.main import app
from superinfer_core.api.v1alpha1.labels import OPERATOR_ANNOTATION_PREFIX
from superinfer_core.api.v1alpha1.meta import GROUP

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "charts/superinfer/*.md", "manifests/*.md")
    for path in ROOT.glob(pattern)
)
MEMBERS = ("core", "proto", "kube", "ingress", "sidecar", "executor", "operator", "gpumock", "cli", "bench")
PACKAGES = [
    path
    for member in MEMBERS
    for path in sorted((ROOT / member).glob("superinfer*"))
    if (path / "__init__.py").exists()
]
FOREIGN_COMMANDS = re.compile(r"\s*(kubectl|helm|curl|docker|kind|git|uv|export)\b|.*\bpytest\b")
VLLM_OPTIONS = {
    "--max-model-len",
    "--max-num-seqs",
    "--gpu-memory-utilization",
    "--distributed-executor-backend",
}
HELM_VALUES = "--set"


def code_of(document: Path) -> list[str]:
    """Lines of code blocks, and what stands in backticks."""
    text = document.read_text(encoding="utf-8")
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [*joined.splitlines(), *re.findall(r"`([^`]+)`", prose)]


def sources() -> Iterator[str]:
    """Everything the product is made of but its documents and tests."""
    folders = [
        *PACKAGES,
        ROOT / "e2e",
        ROOT / "images",
        ROOT / "gpumock" / "nvml",
        ROOT / "charts" / "superinfer",
    ]
    for folder in folders:
        for path in folder.rglob("*"):
            if path.suffix in (".py", ".c", ".h", ".yaml", ".tpl") and "__pycache__" not in path.parts:
                yield path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def code() -> str:
    return "\n".join(sources())


def named(pattern: str) -> list[tuple[Path, str]]:
    """Every match in the documents, once for each document."""
    found = []
    for document in DOCUMENTS:
        found += [(document, name) for name in sorted(set(re.findall(pattern, document.read_text("utf-8"))))]
    assert found, f"no document has {pattern}"
    return found


def missing(names: Iterable[tuple[Path, str]]) -> list[str]:
    return [f"{document.relative_to(ROOT)}: {name}" for document, name in names]


def test_every_link_leads_somewhere() -> None:
    links = named(r"\]\(([^)#\s]+)[^)]*\)")
    local = [(document, link) for document, link in links if not re.match(r"[a-z]+:", link)]
    assert missing(one for one in local if not (one[0].parent / one[1]).exists()) == []


def test_every_path_is_there() -> None:
    """Paths of the repository; what is built at run time is not in it."""
    folders = "|".join((*MEMBERS, "docs", "charts", "e2e", "images", "manifests", "crds", "make", "scripts"))
    paths = named(rf"`((?:{folders})/[A-Za-z0-9_./-]+)`")
    paths += [(document, f"*/{path}") for document, path in named(r"`(superinfer_[a-z]+/[a-z_./]+)`")]
    assert missing(one for one in paths if not list(ROOT.glob(one[1].rstrip("/")))) == []


def test_every_module_and_what_is_in_it_can_be_imported() -> None:
    names = "|".join(path.name for path in PACKAGES if path.name != "superinfer")
    dotted = named(rf"\b((?:{names})(?:\.[A-Za-z_][A-Za-z0-9_]*)+)")
    assert missing(one for one in dotted if not importable(one[1])) == []


def importable(dotted: str) -> bool:
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute, None)
        return found is not None
    return False


def test_every_make_target_is_one() -> None:
    makefiles = [ROOT / "Makefile", *(ROOT / "make").glob("*.mk")]
    rules = re.findall(
        r"^([a-z][a-z0-9 -]*):(?!=)", "\n".join(path.read_text() for path in makefiles), re.MULTILINE
    )
    targets = {target for rule in rules for target in rule.split()}
    used = [
        (document, target)
        for document in DOCUMENTS
        for line in code_of(document)
        for target in re.findall(r"^(?:\$ )?make ([a-z][a-z0-9-]+)", line)
    ]
    assert used
    assert missing(one for one in used if one[1] not in targets) == []


def commands_of(document: Path) -> Iterator[list[str]]:
    for line in code_of(document):
        for text in re.findall(r"(?:^|\| |\$ )(superinfer (?:[a-z-].*))$", line):
            if not re.match(r"superinfer (charts|-n|--namespace|-A)", text):
                yield shlex.split(re.split(r" [&|;] ?", text)[0], comments=True)[1:]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_every_command_line_is_understood(document: Path) -> None:
    root = typer.main.get_command(app)
    for words in commands_of(document):
        command, rest = root, list(words)
        while (commands := getattr(command, "commands", None)) and rest and not rest[0].startswith("-"):
            name = rest.pop(0)
            assert name in commands, f"superinfer {' '.join(words)}: no command {name}"
            command = commands[name]
        known = {name for parameter in command.params for name in parameter.opts + parameter.secondary_opts}
        known |= {"-h", "--help"}
        options = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert options <= known, f"superinfer {' '.join(words)}: {sorted(options - known)}"


def test_every_option_exists(code: str) -> None:
    """Options beside our own command lines, which are checked one by one: of the other entry points."""
    used = [
        (document, option)
        for document in DOCUMENTS
        for line in code_of(document)
        if not FOREIGN_COMMANDS.match(line) and HELM_VALUES not in line
        for option in re.findall(r"(?:^|\s)(--[a-z][a-z0-9-]+)", line)
    ]
    assert used
    literal = set(re.findall(r"\"(--[a-z][a-z0-9-]+)", code))
    derived = {
        f"--{name.replace('_', '-')}"
        for name in re.findall(r"^    \"?([a-z][a-z0-9_]+)\"?:", code, re.MULTILINE)
    }
    assert missing(one for one in used if one[1] not in literal | derived | VLLM_OPTIONS) == []


def test_every_metric_is_emitted(code: str) -> None:
    packages = {path.name for path in PACKAGES}
    used = [
        (document, name)
        for document, name in named(r"\bsuperinfer_[a-z][a-z0-9_]*[a-z](?![a-z_./])")
        if name not in packages
    ]
    assert missing(one for one in used if not emitted(one[1], code)) == []


def emitted(metric: str, code: str) -> bool:
    """Whether the code has the name, whole or without the prefix that a collector puts before its own."""
    family = re.sub(r"_(total|bucket|sum|count)$", "", metric)
    tails = [family.removeprefix(f"superinfer_{part}_") for part in ("sidecar", "operator", "checkpoint")]
    return any(f'"{name}"' in code for name in (family, *tails))


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"\bSUPERINFER_[A-Z0-9_]+\b", id="environment variables"),
        pytest.param(r"\bx-(?:slo|superinfer|llm-d)-[a-z-]*[a-z]\b", id="headers"),
        pytest.param(r"\b(?:[a-z]+\.)?superinfer\.dev/[a-z-]*[a-z]\b", id="labels and annotations"),
    ],
)
def test_every_name_is_used_by_the_code(pattern: str, code: str) -> None:
    built = re.sub(r"{(labels\.)?OPERATOR_ANNOTATION_PREFIX}", OPERATOR_ANNOTATION_PREFIX, code)
    built = built.replace("{GROUP}", GROUP)
    assert missing(one for one in named(pattern) if one[1] not in built) == []
