"""Tests the API against its OpenAPI description: `run.py TIDINGS sqlite|mongo [--examples N] [--seed S]`.

Schemathesis generates requests. No response may be 5xx or undocumented, valid requests must succeed, and
invalid ones must be rejected. Without a seed, the requests are the same in each run. `hooks.py` has the rules
that the description cannot express. With `mongo`, TIDINGS_TEST_MONGO is the URL of the server; scripts/with-mongo
sets it.
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
from stage import KEY, Tidings, wait_until  # noqa: E402

# The longest window, so that the server accepts all days that the description allows.
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

# These need a link's token or a provider's signature, which Schemathesis cannot generate.
CANNOT_SUCCEED = {
    "POST /hooks/{provider}",
    *(f"{method} /u/{{token}}{page}" for method in ("GET", "POST") for page in ("", "/preferences")),
}


@contextlib.contextmanager
def store(kind):
    """Creates an empty store. Returns its value in the configuration, and drops the database at the end."""
    if kind == "sqlite":
        yield "sqlite:tidings.db"
        return
    url = os.environ.get("TIDINGS_TEST_MONGO") or sys.exit("run.py: mongo needs a server; use scripts/with-mongo")
    address, _, options = url.partition("?")
    scheme, _, rest = address.partition("://")
    hosts, database = rest.split("/")[0], f"tidings_api_{os.getpid()}"
    try:
        yield f"{scheme}://{hosts}/{database}?{options}"
    finally:
        for host in hosts.rpartition("@")[2].split(","):
            name, _, port = host.partition(":")
            # In a replica set, only the primary can drop the database.
            with contextlib.suppress(OSError, CommandFailed), Connection(name, int(port or 27017)) as connection:
                connection.command({"dropDatabase": 1}, database)


def create_records(tidings):
    """Creates the records of the description's examples and two open batches. Returns generated ids by path."""
    users = ("mara", "noor")
    records = [{"id": user, "email": f"{user}@example.org", "confirmed": True} for user in users]
    tidings.ask("POST", "/v1/users", records)
    tidings.ask("PUT", "/v1/objects/Artwork/A00001", {"title": "A Figure Bowing before a Seated Old Man"})
    tidings.ask("POST", "/v1/suppressions", {"address": "mara@example.org", "reason": "soft_bounces"})
    event = tidings.ask("POST", "/v1/events", {"type": "ArtworkPublished", "objects": "A00001", "to": users})["id"]
    mara, noor = (wait_until(lambda: tidings.ask("GET", f"/v1/batches?user={user}")["batches"])[0]["id"] for user in users)
    batch = "/v1/batches/{id}"
    return {"/v1/events/{id}": event, batch: mara, batch + "/close": mara, batch + "/cancel": noor}


def run_schemathesis(tidings, folder, examples, seed):
    """Returns the report, the counts of hooks.py, and the exit code."""
    description = folder / "openapi.json"
    description.write_text(json.dumps(tidings.ask("GET", "/openapi.json")))
    counts, report = folder / "counts.json", folder / "report.json"
    env = {
        **os.environ, "PYTHONDONTWRITEBYTECODE": "1", "SCHEMATHESIS_HOOKS": HERE / "hooks.py",
        "TIDINGS_API_COUNTS": counts, "TIDINGS_API_IDS": json.dumps(create_records(tidings)),
    }
    command = [
        Path(sys.executable).parent / "schemathesis", "--config-file", HERE / "schemathesis.toml", "run", description,
        "--url", tidings.url, "--header", f"Authorization: Bearer {KEY}",
        "--phases", "examples,coverage,fuzzing", "--max-examples", str(examples),
        "--report", "json", "--report-json-path", report, "--no-color",
        *(["--generation-deterministic"] if seed is None else ["--seed", str(seed)]),
    ]
    code = subprocess.run(command, cwd=folder, env=env).returncode
    # A killed process may leave an empty file.
    read = lambda path: json.loads(path.read_text() or "{}") if path.exists() else {}
    return read(report), read(counts), code


def print_results(operations, report, counts, code):
    """Prints the result of each operation as cargo does for tests. Returns whether all passed."""
    failing = {name for failure in report.get("failures", []) for name in failure["operations"]}
    untested = set(operations) - set(counts.get("succeeded", [])) - CANNOT_SUCCEED
    for name in operations:
        result = "FAILED" if name in failing else "FAILED: no request succeeded" if name in untested else "ok"
        print(f"test {name} ... {result}")
    for name, count in sorted(counts.get("counts", {}).items()):
        print(f"{count:8} {name}")
    failed = len(failing | untested)
    if code and not failed:
        print(f"Schemathesis exited with {code}; see its output above")
        failed = 1
    runner.say(len(operations) - failed, failed)
    return not failed


def main():
    parser = argparse.ArgumentParser(description="Test the API against its description with Schemathesis")
    parser.add_argument("tidings", type=Path)
    parser.add_argument("store", choices=["sqlite", "mongo"])
    parser.add_argument("--examples", type=int, default=5, help="maximum number of examples per operation (default 5)")
    parser.add_argument("--seed", type=int, help="generate other requests, the same for the same seed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidings-api.") as folder, store(args.store) as store_url:
        folder = Path(folder)
        tidings = Tidings(args.tidings.resolve(), folder, CONFIG, store=store_url)
        try:
            paths = tidings.ask("GET", "/openapi.json")["paths"]
            operations = [
                f"{method.upper()} {path}"
                for path, methods in paths.items() for method in methods if method != "parameters"
            ]
            results = run_schemathesis(tidings, folder, args.examples, args.seed)
        finally:
            tidings.stop()
    return print_results(operations, *results)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
