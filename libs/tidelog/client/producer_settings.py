"""Checks that the settings of a producer fit together. No I/O."""

from __future__ import annotations

import re

from tidelog.client.arguments import shown
from tidelog.client.partition_queue import Idempotence
from tidelog.client.sequences import MAX_UNSETTLED_BATCHES, Identity
from tidelog.errors import InvalidArgumentError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, Acks

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")


def _of_a_given(identity: Identity, idempotence: Idempotence, name: str | None) -> Idempotence:
    if name is not None or idempotence is Idempotence.OFF:
        raise InvalidArgumentError(
            "identity is for an idempotent producer whose name was given to InitProducerId: leave "
            "out producer_name, and leave idempotent and acks as they are"
        )
    if identity.producer_id < FIRST_NAMED_PRODUCER_ID:
        raise InvalidArgumentError(
            f"identity has producer id {identity.producer_id}, which is of no name; take one from "
            "Admin.init_producer_id with a name"
        )
    return Idempotence.GIVEN


def idempotence_of(
    acks: Acks,
    idempotent: bool | None,
    name: str | None,
    max_in_flight_per_partition: int,
    given: Identity | None = None,
) -> Idempotence:
    """Returns the idempotence that the settings select. `given`: an identity from the caller; None:
    the producer gets its own. Raises `InvalidArgumentError` for settings that do not fit."""
    idempotence = _idempotence_of(acks, idempotent, name, max_in_flight_per_partition)
    return idempotence if given is None else _of_a_given(given, idempotence, name)


def _idempotence_of(
    acks: Acks, idempotent: bool | None, name: str | None, max_in_flight_per_partition: int
) -> Idempotence:
    if idempotent is None:
        idempotent = acks is Acks.ALL
    if name is not None and not idempotent:
        raise InvalidArgumentError(
            f"producer_name {shown(name)} is for an idempotent producer: leave idempotent as it "
            "is, with acks all, or leave out the name"
        )
    if not idempotent:
        return Idempotence.OFF
    if acks is not Acks.ALL:
        raise InvalidArgumentError(
            f"an idempotent producer needs acks all, not {acks.name.lower()}: leave acks as it "
            "is, or set idempotent to False"
        )
    if name is not None and not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"producer_name {shown(name)} is no name: give 1 to 200 characters of letters, digits "
            "and ._-"
        )
    if max_in_flight_per_partition > MAX_UNSETTLED_BATCHES:
        raise InvalidArgumentError(
            f"max_in_flight_per_partition is {max_in_flight_per_partition}; with idempotence it "
            f"is at most {MAX_UNSETTLED_BATCHES}, because brokers remember so many batches"
        )
    return Idempotence.UNNAMED if name is None else Idempotence.NAMED
