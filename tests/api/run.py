"""Asks the API what nobody thought of: `run.py TIDINGS sqlite|mongo [--examples N] [--seed S]`.

The rule: Schemathesis reads the description that the server gives, and holds every request and answer against
it: no 5xx, nothing that is not described, no valid request refused, no invalid one taken. Without a seed the
requests are the same each time, and nothing depends on how long an answer takes. What the description cannot
say stands in `hooks.py`. A feed's stream is read for one event; pages and hooks are asked with what opens
nothing, as tokens and signatures cannot be made up.

With `mongo`, TIDINGS_TEST_MONGO names the server, as `scripts/with-mongo` says it.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "web"), str(HERE.parents[1] / "scripts/lib")]

import runner  # noqa: E402
from mongo_wire import CommandFailed, Connection  # noqa: E402
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

# What opens with a link's token or a provider's signature.
CLOSED = {"POST /hooks/{provider}", *(f"{method} /u/{{token}}{page}" for method in ("GET", "POST") for page in ("", "/preferences"))}


@contextlib.contextmanager
def store(kind):
    """A store of its own, as the configuration names it."""
    if kind == "sqlite":
        yield "sqlite:tidings.db"
        return
    url = os.environ.get("TIDINGS_TEST_MONGO") or sys.exit("run.py: mongo needs a server: scripts/with-mongo runs this with one")
    address, _, options = url.partition("?")
    scheme, _, rest = address.partition("://")
    hosts, database = rest.split("/")[0], f"tidings_api_{os.getpid()}"
    try:
        yield f"{scheme}://{hosts}/{database}?{options}"
    finally:
        for host in hosts.rpartition("@")[2].split(","):
            name, _, port = host.partition(":")
            # Of a set, the primary alone does it.
            with contextlib.suppress(OSError, CommandFailed), Connection(name, int(port or 27017)) as connection:
                connection.command({"dropDatabase": 1}, database)


def found(tidings):
    """Lets there be what the description's examples name, and two open batches; the ids that the server made, by path."""
    people = ("mara", "noor")
    tidings.ask("POST", "/v1/users", [{"id": one, "email": f"{one}@example.org", "confirmed": True} for one in people])
    tidings.ask("PUT", "/v1/objects/Artwork/A00001", {"title": "A Figure Bowing before a Seated Old Man"})
    tidings.ask("POST", "/v1/suppressions", {"address": "mara@example.org", "reason": "soft_bounces"})
    event = tidings.ask("POST", "/v1/events", {"type": "ArtworkPublished", "objects": "A00001", "to": people})["id"]
    mara, noor = (until(lambda: tidings.ask("GET", f"/v1/batches?user={one}")["batches"])[0]["id"] for one in people)
    batch = "/v1/batches/{id}"
    return {"/v1/events/{id}": event, batch: mara, batch + "/close": mara, batch + "/cancel": noor}


def ask(tidings, folder, examples, seed):
    """Runs Schemathesis; what it found, what was counted, and how it ended."""
    described = folder / "openapi.json"
    described.write_text(json.dumps(tidings.ask("GET", "/openapi.json")))
    counts, report = folder / "counts.json", folder / "report.json"
    told = {"SCHEMATHESIS_HOOKS": HERE / "hooks.py", "TIDINGS_API_COUNTS": counts, "TIDINGS_API_IDS": json.dumps(found(tidings))}
    command = [
        Path(sys.executable).parent / "schemathesis", "--config-file", HERE / "schemathesis.toml", "run", described, "--url", tidings.url,
        "--phases", "examples,coverage,fuzzing", "--max-examples", str(examples), "--header", f"Authorization: Bearer {KEY}",
        "--report", "json", "--report-json-path", report, "--no-color",
        *(["--generation-deterministic"] if seed is None else ["--seed", str(seed)]),
    ]
    ended = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **told}).returncode
    # Whoever is killed may leave an empty file.
    read = lambda path: json.loads(path.read_text() or "{}") if path.exists() else {}
    return read(report), read(counts), ended


def tell(operations, report, noted, ended):
    """Prints how each operation fared, as cargo does of tests; whether all is well."""
    failing = {name for failure in report.get("failures", []) for name in failure["operations"]}
    never = set(operations) - set(noted.get("done", [])) - CLOSED
    for name in operations:
        why = "FAILED" if name in failing else "FAILED: nothing that was asked of it was done" if name in never else "ok"
        print(f"test {name} ... {why}")
    for name, count in sorted(noted.get("counts", {}).items()):
        print(f"{count:8} {name}")
    failed = len(failing | never)
    if ended and not failed:
        print(f"Schemathesis ended with {ended}; what it said is above")
        failed = 1
    runner.say(len(operations) - failed, failed)
    return not failed


def main():
    parser = argparse.ArgumentParser(description="Schemathesis against a server of its own")
    parser.add_argument("tidings", type=Path)
    parser.add_argument("store", choices=["sqlite", "mongo"])
    parser.add_argument("--examples", type=int, default=5, help="at most, of an operation (default 5)")
    parser.add_argument("--seed", type=int, help="other requests; the same seed gives the same")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidings-api.") as folder, store(asked.store) as kept:
        folder = Path(folder)
        tidings = Tidings(asked.tidings.resolve(), folder, CONFIG, store=kept)
        try:
            paths = tidings.ask("GET", "/openapi.json")["paths"]
            operations = [f"{method.upper()} {path}" for path, known in paths.items() for method in known if method != "parameters"]
            fared = ask(tidings, folder, asked.examples, asked.seed)
        finally:
            tidings.stop()
    return tell(operations, *fared)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
