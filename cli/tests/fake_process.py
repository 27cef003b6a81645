"""A process for supervisor tests: says ready, then lives, crashes or ignores SIGTERM as told."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

behaviour, scratch = sys.argv[1], Path(sys.argv[2])
with (scratch / "pids").open("a") as pids:
    pids.write(f"{os.getpid()}\n")


def stop(*_: object) -> None:
    with (scratch / "stops").open("a") as stops:
        stops.write(f"{sys.argv[3]}\n")
    sys.exit(0)


signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "deaf" else stop)
if behaviour == "never-ready":
    sys.stderr.write("the engine is missing a thing\n")
    sys.exit(3)
if behaviour == "with-child":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with (scratch / "pids").open("a") as pids:
        pids.write(f"{child.pid}\n")
print("a line that is no event")
print(json.dumps({"event": "loading", "message": "half way"}))
print(json.dumps({"event": "ready"}), flush=True)
if behaviour == "crash-once" and not (scratch / "crashed").exists():
    (scratch / "crashed").touch()
    os.kill(os.getpid(), signal.SIGSEGV)
time.sleep(600)
