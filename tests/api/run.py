"""Asks the API what nobody thought of: `run.py TIDINGS sqlite|mongo [--examples N] [--seed S]`.

The rule: Schemathesis reads the description that the server gives, and holds every request and answer against
it: no 5xx, nothing that is not described, no valid request refused, no invalid one taken. Without a seed the
requests are the same each time, and nothing depends on how long an answer takes. What the description cannot
say stands in `hooks.py`. A feed's stream is read for one event; pages and hooks are asked with what opens
nothing, as tokens and signatures cannot be made up.

With `mongo`, TIDINGS_TEST_MONGO names the server, as `scripts/with-mongo` says it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "web"))

from stage import KEY, Tidings, until  # noqa: E402

# The longest window, so that the days that the description allows are days that the server has.
CONFIG = """
[window]
days_back = 60
[archive]
keep = "90d"
[types.ArtworkPublished]
model = "Artwork"
route = "batch"
window = "1h"
"""


def store(kind, folder):
    if kind == "sqlite":
        return f"sqlite:{folder}/tidings.db"
    url = os.environ.get("TIDINGS_TEST_MONGO") or sys.exit("run.py: mongo needs a server: scripts/with-mongo runs this with one")
    address, _, options = url.partition("?")
    scheme, _, hosts = address.partition("://")
    return f"{scheme}://{hosts.split('/')[0]}/schemathesis_{os.getpid()}?{options}"


def found(tidings):
    """Lets there be a person with an event that waits in a batch; how the two are called."""
    tidings.ask("PUT", "/v1/users/mara", {"email": "mara@example.org", "confirmed": True})
    tidings.ask("PUT", "/v1/objects/Artwork/A00001", {"title": "A Figure Bowing"})
    event = tidings.ask("POST", "/v1/events", {"type": "ArtworkPublished", "objects": "A00001", "to": "mara"})["id"]
    batch = until(lambda: tidings.ask("GET", "/v1/batches?user=mara")["batches"])[0]["id"]
    return event, batch


def ask(tidings, folder, examples, seed):
    """Runs Schemathesis; what it found, what was counted, and how it ended."""
    event, batch = found(tidings)
    counts, report = folder / "counts.json", folder / "report.json"
    known = {"SCHEMATHESIS_HOOKS": str(HERE / "hooks.py"), "PYTHONDONTWRITEBYTECODE": "1", "TIDINGS_API_COUNTS": str(counts), "TIDINGS_API_EVENT": event, "TIDINGS_API_BATCH": batch}
    command = [
        Path(sys.executable).parent / "schemathesis", "--config-file", HERE / "schemathesis.toml", "run", tidings.url + "/openapi.json",
        "--phases", "examples,coverage,fuzzing", "--max-examples", str(examples), "--header", f"Authorization: Bearer {KEY}",
        "--report", "json", "--report-json-path", report, "--no-color",
        *(["--generation-deterministic"] if seed is None else ["--seed", str(seed)]),
    ]
    ended = subprocess.run(command, cwd=folder, env={**os.environ, **known}).returncode
    read = lambda path: json.loads(path.read_text()) if path.exists() else {}
    return read(report), read(counts), ended


def main():
    parser = argparse.ArgumentParser(description="Schemathesis against a server of its own")
    parser.add_argument("tidings", type=Path)
    parser.add_argument("store", choices=["sqlite", "mongo"])
    parser.add_argument("--examples", type=int, default=5, help="at most, of an operation (default 5)")
    parser.add_argument("--seed", type=int, help="other requests; the same seed gives the same")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidings-api.") as folder:
        folder = Path(folder)
        tidings = Tidings(asked.tidings.resolve(), folder, store(asked.store, folder), CONFIG)
        try:
            report, counts, ended = ask(tidings, folder, asked.examples, asked.seed)
        finally:
            tidings.stop()
    for name, count in sorted(counts.items()):
        print(f"{count:8} {name}")
    print(json.dumps(report)[:6000])
    return ended


if __name__ == "__main__":
    sys.exit(main())
