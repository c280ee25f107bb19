"""The gRPC client, the REST gateway and the commands reject invalid input alike: with the same
code, the same reason and the same fix."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from unit.interfaces.bad_input import BAD_INPUT, BadInput
from unit.interfaces.world import Rejection, World


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def answers(world: World, bad: BadInput) -> dict[str, Rejection | None]:
    """The answer of each interface in which the input can be expressed."""
    reported: dict[str, Rejection | None] = {}
    if bad.grpc is not None:
        reported["grpc"] = world.by_grpc(bad.grpc)
    if bad.rest is not None:
        reported["rest"] = world.by_rest(bad.rest)
    if bad.cli is not None:
        reported["cli"] = world.by_command(tuple(shlex.split(bad.cli)), bad.stdin)
    return reported


@pytest.mark.parametrize("bad", BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input_is_rejected_alike_by_every_interface_and_changes_nothing(
    world: World, bad: BadInput
) -> None:
    reported = answers(world, bad)

    codes = {face: each.code if each else "accepted" for face, each in reported.items()}
    assert codes == dict.fromkeys(reported, bad.code.name)
    messages = {face: each.message for face, each in reported.items() if each is not None}
    for message in messages.values():
        assert all(phrase in message for phrase in bad.phrases), message
    assert len({message for face, message in messages.items() if face not in bad.apart}) <= 1
    assert all(each.fix != "" for each in reported.values() if each is not None)
    assert world.in_loop(world.kept()) == world.before
