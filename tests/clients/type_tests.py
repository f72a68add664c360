"""Compares the types and calls of both clients with openapi.json, and checks them with mypy and TypeScript.

A field or an operation that the API adds must be added to both clients, or a test fails.
"""

import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import get_args
from unittest.mock import create_autospec

import httpx
import runner
from stage import ROOT
from tidings_client import AsyncClient, Client, records

OPENAPI = json.loads((ROOT / "src/wire/openapi.json").read_text())
SCHEMAS = OPENAPI["components"]["schemas"]
TYPES = """Event Actor Receipt Progress Digest User UserWithId UserPatch UserView Preferences Follow
    Mute Mutes Object ObjectWithId ObjectView Item Page Group GroupPage Counts Batch""".split()
# The clients have no calls for operators and none for the stream: see docs/clients.md.
EXCLUDED = {
    "streamFeed", "closeBatch", "cancelBatch", "getSuppressions", "postSuppressions",
    "getSuppression", "deleteSuppression",
}


def schema_fields(name):
    """Returns the names of all fields of a schema, and those of the required ones."""
    schema = SCHEMAS[name]
    fields, required = set(schema.get("properties", {})), set(schema.get("required", []))
    for part in schema.get("allOf", []):
        part_fields, part_required = schema_fields(part["$ref"].rsplit("/", 1)[1])
        fields, required = fields | part_fields, required | part_required
    return fields, required


def query_parameters(path):
    parameters = OPENAPI["paths"][path]["get"]["parameters"]
    return {parameter["name"] for parameter in parameters if parameter["in"] == "query"}


def mark_bodies():
    """Returns the fields of a mark up to a cursor, and those of a mark by ids."""
    return [set(SCHEMAS[name]["properties"]) for name in ("MarkTo", "MarkIds")]


def client_fields(name):
    fields, required = schema_fields(name)
    # The path has the id, so the types of the body omit it.
    return fields - ({"id"} if name in ("User", "Object") else set()), required


@runner.test
def the_types_of_the_python_client_match_openapi():
    for name in TYPES:
        fields, required = client_fields(name)
        record = getattr(records, name)
        assert set(record.__annotations__) == fields, (name, set(record.__annotations__) ^ fields)
        assert record.__required_keys__ == required, (name, record.__required_keys__ ^ required)
    for name in ("Mark", "Route", "Cadence", "Weekday", "BatchState"):
        assert list(get_args(getattr(records, name))) == SCHEMAS[name]["enum"], name
    mark_parameters = set(inspect.signature(Client.mark).parameters)
    assert mark_parameters - {"self", "user"} == set().union(*mark_bodies())
    assert set(records.FeedQuery.__annotations__) | {"group"} == query_parameters("/v1/users/{id}/feed")
    assert set(records.BatchQuery.__annotations__) == query_parameters("/v1/batches")


@runner.test
def the_types_of_the_javascript_client_match_openapi():
    text = (ROOT / "clients/js/tidings.d.ts").read_text()
    interfaces = {}
    for name, extends, body in re.findall(
            r"^(?:export )?interface (\w+)(?: extends (\w+))? \{\n(.*?)^\}", text, re.M | re.S):
        fields = dict(re.findall(r"^  (\w+)(\??):", body, re.M))
        interfaces[name] = {**interfaces.get(extends, {}), **fields}
    interfaces["Object"] = interfaces["ObjectFields"]
    interfaces["Event"] = {**interfaces["EventFields"], "to": "?", "followers_of": "?", "near": "?"}

    for name in TYPES:
        fields, required = client_fields(name)
        assert set(interfaces[name]) == fields, (name, set(interfaces[name]) ^ fields)
        declared = {field for field, optional in interfaces[name].items() if not optional}
        assert declared == required, (name, declared ^ required)
    assert [set(interfaces["MarkedTo"]), set(interfaces["MarkedIds"])] == [
        fields - {"mark"} for fields in mark_bodies()]
    assert set(interfaces["FeedQuery"]) | {"group"} == query_parameters("/v1/users/{id}/feed")
    assert set(interfaces["BatchQuery"]) == query_parameters("/v1/batches")


@runner.test
def all_methods_of_the_javascript_client_are_declared():
    module = (ROOT / "clients/js/tidings.js").read_text()
    types = (ROOT / "clients/js/tidings.d.ts").read_text()
    method = re.compile(r"^  (?:async )?(\w+)\(", re.M)

    implemented = set(method.findall(module[module.index("export class Tidings {"):]))
    declared = set(method.findall(types[types.index("export class Tidings {"):]))

    assert implemented == declared and len(implemented) > 25, implemented ^ declared


@runner.test
def both_python_clients_have_the_same_explicit_signatures():
    functions = inspect.getmembers(Client, inspect.isfunction)
    names = [name for name, _ in functions if not name.startswith("_") and name != "close"]
    assert len(names) > 25, names
    for name in names:
        sync, other = (inspect.signature(getattr(kind, name)) for kind in (Client, AsyncClient))
        assert sync.parameters == other.parameters, name
        kinds = {parameter.kind for parameter in sync.parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}, name
        assert "->" in str(sync), name


@runner.test
def applications_can_mock_a_client_or_its_transport():
    counts = {"unseen": 3, "unread": 4, "cursor": "c"}
    client = create_autospec(Client, instance=True)
    client.count.return_value = counts
    assert client.count("mara") == counts
    try:
        client.count()
        raise AssertionError("the mock accepts any arguments")
    except TypeError:
        pass
    assert inspect.iscoroutinefunction(create_autospec(AsyncClient).count)

    def respond(request):
        assert request.url.path == "/v1/users/mara/feed/count"
        return httpx.Response(200, json=counts)

    http = httpx.Client(transport=httpx.MockTransport(respond))
    assert Client("https://news.example.org", "key", http=http).count("mara") == counts


@runner.test
def mypy_accepts_the_python_client_in_strict_mode():
    with tempfile.TemporaryDirectory() as cache:
        run = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache,
             ROOT / "clients/python/tidings_client", ROOT / "tests/clients/typed.py"],
            env={**os.environ, "MYPYPATH": str(ROOT / "clients/python")},
            capture_output=True, text=True,
        )
    assert run.returncode == 0, run.stdout + run.stderr


def check_with_typescript(node, names):
    """Compiles typed.mts. Returns whether TypeScript reported an error."""
    tsc = os.environ.get("TIDINGS_TEST_TSC")
    if names:
        return False
    if not tsc:
        print("THE TYPES OF THE JAVASCRIPT CLIENT WERE NOT CHECKED: TypeScript (npm) is missing")
        runner.say(0, 0, 1)
        return False
    flags = "--strict --noEmit --target es2022 --lib es2022,dom --module nodenext".split()
    run = subprocess.run(
        [node, tsc, *flags, ROOT / "tests/clients/typed.mts"], capture_output=True, text=True)
    print(f"test typescript_accepts_the_javascript_client_in_strict_mode ... {run.stdout or 'ok'}")
    runner.say(int(run.returncode == 0), int(run.returncode != 0))
    return run.returncode != 0


def check_calls(python_proxy, javascript_proxies):
    """Returns whether the tests of a client missed an operation, or called an excluded one."""
    operations = {
        call["operationId"]: (method.upper(), re.sub(r"\{\w+\}", "[^/]+", path))
        for path, methods in OPENAPI["paths"].items() if path.startswith("/v1/")
        for method, call in methods.items() if method != "parameters"
    }
    javascript_calls = set().union(*[proxy.calls for proxy in javascript_proxies])
    failed = 0
    for language, calls in (("python", python_proxy.calls), ("javascript", javascript_calls)):
        called = {
            name for name, (method, pattern) in operations.items()
            if any(verb == method and re.fullmatch(pattern, path) for verb, path in calls)
        }
        wrong = sorted(called ^ (operations.keys() - EXCLUDED))
        failed += bool(wrong)
        print(f"test the_{language}_client_calls_every_operation ... {wrong or 'ok'}")
    runner.say(2 - failed, failed)
    return bool(failed)
