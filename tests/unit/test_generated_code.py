"""The distributions require versions of grpcio and protobuf with which the generated code can be
imported: each generated file rejects older ones."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "libs" / "tidelog" / "v1"
# What a generated file says of the version that it needs.
PROTOBUF = re.compile(r"^# Protobuf Python Version: (\S+)$", re.M)
GRPCIO = re.compile(r"^GRPC_GENERATED_VERSION = '(\S+)'$", re.M)


def needed(pattern: re.Pattern[str]) -> Version:
    found = [
        Version(version)
        for path in GENERATED.glob("*_pb2*.py")
        for version in pattern.findall(path.read_text())
    ]
    assert len(found) > 5
    return max(found)


def lowest(project: str, name: str) -> Version:
    """The lowest version that a distribution declares to work with."""
    document = tomllib.loads((ROOT / project).read_text())
    listed = document["project"].get("dependencies")
    if listed is None:
        listed = document["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
    (requirement,) = (r for r in map(Requirement, listed) if r.name == name)
    (bound,) = (s for s in requirement.specifier if s.operator == ">=")
    return Version(bound.version)


@pytest.mark.parametrize(
    ("project", "name", "pattern"),
    [
        ("pyproject.toml", "protobuf", PROTOBUF),
        ("pyproject.toml", "grpcio", GRPCIO),
        # Packages of grpc are released together, and require each other's version.
        ("services/pyproject.toml", "grpcio-health-checking", GRPCIO),
        ("services/pyproject.toml", "grpcio-reflection", GRPCIO),
    ],
)
def test_the_lowest_versions_are_those_of_the_generated_code(
    project: str, name: str, pattern: re.Pattern[str]
) -> None:
    assert lowest(project, name) == needed(pattern)
