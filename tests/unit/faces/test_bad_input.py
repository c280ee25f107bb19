"""The gRPC client, the REST gateway and the commands reject invalid input alike: with the same
code, the same reason and the same fix."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from unit.faces.bad_input import BAD_INPUT, BadInput
from unit.faces.world import Refusal, World


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def answers(world: World, bad: BadInput) -> dict[str, Refusal | None]:
    """The answer of each interface in which the input can be expressed."""
    told: dict[str, Refusal | None] = {}
    if bad.grpc is not None:
        told["grpc"] = world.by_grpc(bad.grpc)
    if bad.rest is not None:
        told["rest"] = world.by_rest(bad.rest)
    if bad.cli is not None:
        told["cli"] = world.by_command(tuple(shlex.split(bad.cli)), bad.stdin)
    return told


@pytest.mark.parametrize("bad", BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input_is_rejected_alike_by_every_interface_and_changes_nothing(
    world: World, bad: BadInput
) -> None:
    told = answers(world, bad)

    codes = {face: refusal.code if refusal else "accepted" for face, refusal in told.items()}
    assert codes == dict.fromkeys(told, bad.code.name)
    messages = {face: refusal.message for face, refusal in told.items() if refusal is not None}
    for message in messages.values():
        assert all(phrase in message for phrase in bad.says), message
    assert len({message for face, message in messages.items() if face not in bad.apart}) <= 1
    assert all(refusal.fix != "" for refusal in told.values() if refusal is not None)
    assert world.in_loop(world.kept()) == world.before
