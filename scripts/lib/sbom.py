"""Prints a CycloneDX 1.5 SBOM of the crates that a binary for one target contains.

    cargo metadata --format-version 1 --locked --filter-platform TARGET | sbom.py Cargo.lock
"""

import json
import sys
import tomllib

metadata = json.load(sys.stdin)
with open(sys.argv[1], "rb") as file:
    locked = tomllib.load(file)["package"]
checksums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
root = metadata["resolve"]["root"]


def dependencies(package):
    """Returns the crates that a package links or builds with, without those of its tests."""
    uses = (use for use in nodes[package]["deps"] if any(kind["kind"] != "dev" for kind in use["dep_kinds"]))
    return sorted({use["pkg"] for use in uses})


def component(package, kind="library"):
    package = packages[package]
    name, version = package["name"], package["version"]
    described = {"type": kind, "bom-ref": f"pkg:cargo/{name}@{version}", "name": name, "version": version}
    described["purl"] = described["bom-ref"]
    if package["license"]:
        # Old crates separate alternatives by a slash, which SPDX does not know.
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := checksums.get((name, version)):
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return described


included, open_packages = set(), [root]
while open_packages:
    package = open_packages.pop()
    if package not in included:
        included.add(package)
        open_packages += dependencies(package)
references = {package: component(package)["bom-ref"] for package in included}
bom = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": component(root, "application")},
    "components": sorted((component(package) for package in included - {root}), key=lambda one: one["bom-ref"]),
    "dependencies": [
        {"ref": references[package], "dependsOn": [references[one] for one in dependencies(package)]}
        for package in sorted(included)
    ],
}
print(json.dumps(bom, indent=1))
