"""`python -m superinfer_ingress --config FILE.yaml`: one ingress until SIGTERM; `new-key`: an API key."""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from superinfer_ingress.assembly import Ingress
from superinfer_ingress.config import ConfigInvalid, load_config
from superinfer_ingress.contracts.keys import KeysInvalid, add_key, new_key
from superinfer_kube.errors import KubeConfigError
from superinfer_proto.processes import spare_from_collection

EXIT_OK, EXIT_USAGE = 0, 2


def main(argv: Sequence[str]) -> int:
    """Run; 0 after a clean drain, 2 for settings that cannot be used."""
    if argv[:1] == ["new-key"]:
        return _new_key(argv[1:])
    parser = argparse.ArgumentParser(prog="python -m superinfer_ingress", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="YAML; see docs/ingress.example.yaml")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=arguments.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for chatty in ("watchfiles", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        uvloop.run(_run(arguments.config))
    except (ConfigInvalid, KeysInvalid, KubeConfigError, OSError) as error:
        sys.stderr.write(f"superinfer_ingress: {error}\n")
        return EXIT_USAGE
    return EXIT_OK


async def _run(path: Path) -> None:
    await Ingress(load_config(path)).run(_announce)


def _announce(port: int) -> None:
    spare_from_collection()
    sys.stdout.write(json.dumps({"event": "ready", "port": port}) + "\n")
    sys.stdout.flush()


def _new_key(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m superinfer_ingress new-key",
        description="Make an API key: printed once on stdout, kept only as a hash in the keys file.",
    )
    parser.add_argument("--keys", type=Path, required=True, help="the keys file; created if it is not there")
    parser.add_argument("--name", required=True, help="what the key is called in logs")
    parser.add_argument("--namespace", action="append", default=[], help="whose contracts it may name")
    parser.add_argument("--secret", help="apiKeySecretRef.name of the contracts it serves")
    parser.add_argument("--admin", action="store_true", help="may read and change contracts")
    arguments = parser.parse_args(argv)
    plain, entry = new_key(
        arguments.name,
        namespaces=tuple(arguments.namespace),
        secret=arguments.secret,
        admin=arguments.admin,
    )
    try:
        add_key(arguments.keys, entry)
    except (KeysInvalid, OSError) as error:
        sys.stderr.write(f"superinfer_ingress new-key: {error}\n")
        return EXIT_USAGE
    sys.stdout.write(plain + "\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
