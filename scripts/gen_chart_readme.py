"""Writes charts/superinfer/README.md from the chart's values.yaml: every `# --` comment is a row.

`--check` writes nothing and fails when the file is stale. Standard library and PyYAML only.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[1] / "charts" / "superinfer"
_HEAD: Final = """# Chart superinfer

Operator, ingress, rights, CustomResourceDefinitions and certificates of SuperInfer in one release.

```
helm install superinfer charts/superinfer --namespace superinfer-system --create-namespace
kubectl apply -f manifests/samples/first
```

There is one SuperInfer in a cluster; its operator looks after pools and contracts of every namespace. The
namespace of the release may enforce the pod security level `restricted`, except with `nodeAgent.enabled`.
CustomResourceDefinitions are templates, so `helm upgrade` upgrades them, and are kept on `helm uninstall`,
because contracts go with them. Before an uninstallation a hook removes every pool while the operator can
still drain it.
[docs/kubernetes.md](../../docs/kubernetes.md) leads through installation, first pool, keys, TLS, upgrades and
troubleshooting.

## Values

| value | default | what it does |
| --- | --- | --- |
"""


def rows(text: str) -> list[tuple[str, str, str]]:
    """(dotted path, default as JSON, description) of every value that has a description."""
    values = yaml.safe_load(text)
    found: list[tuple[str, str, str]] = []
    path: list[tuple[int, str]] = []
    about: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# --"):
            about = [stripped[4:].strip()]
        elif stripped.startswith("#") and about:
            about.append(stripped[1:].strip())
        elif (key := re.match(r"( *)([A-Za-z][\w.-]*):", line)) is not None:
            indent = len(key[1])
            path = [entry for entry in path if entry[0] < indent] + [(indent, key[2])]
            if about:
                names = [name for _, name in path]
                found.append((".".join(names), json.dumps(_at(values, names)), " ".join(about)))
                about = []
        elif not stripped:
            about = []
    return found


def _at(values: Any, names: list[str]) -> Any:
    for name in names:
        values = values[name]
    return values


def readme(text: str) -> str:
    """The whole file."""
    table = [
        f"| `{path}` | `{default}` | {about} |\n"
        for path, default, about in ((p, d, a.replace("|", "\\|")) for p, d, a in rows(text))
    ]
    return _HEAD + "".join(table)


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the file is stale")
    options = parser.parse_args()
    wanted = readme((CHART / "values.yaml").read_text(encoding="utf-8"))
    target = CHART / "README.md"
    if not options.check:
        target.write_text(wanted, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != wanted:
        sys.stderr.write(f"stale: {target}; run 'make gen' and commit\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
