"""Every list of every request has an explicit limit. The lists come from the descriptors of all
services, so a new field fails here until it has a limit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from bench.pauses.requests import all_rpcs, method_name
from tidelog import request_bounds
from tidelog.rpc.list_limits import lists_of
from tidelog.rpc.message_bounds import is_internal

RPCS = all_rpcs()
OF_RPC = pytest.mark.parametrize("rpc", RPCS, ids=[method_name(rpc) for rpc in RPCS])
# A request, an entry of its list, and the content of that entry.
MAX_DEPTH = 4


def fields_of(
    descriptor: Descriptor, above: tuple[Descriptor, ...] = ()
) -> Iterator[tuple[FieldDescriptor, int]]:
    """All fields of a message at any depth, with the depth."""
    assert descriptor not in above, f"{descriptor.full_name} holds itself: its depth is unbounded"
    for field in descriptor.fields:
        yield field, len(above)
        if field.message_type is not None:
            yield from fields_of(field.message_type, (*above, descriptor))


@OF_RPC
def test_each_list_of_a_request_has_a_limit(rpc: MethodDescriptor) -> None:
    lists = {field.full_name for field, _ in fields_of(rpc.input_type) if field.is_repeated}
    missing = lists - set(request_bounds.ENTRY_LIMITS)
    assert not missing, f"name their limits in request_bounds.ENTRY_LIMITS: {sorted(missing)}"


@OF_RPC
def test_messages_nest_no_deeper_than_the_checks(rpc: MethodDescriptor) -> None:
    assert max((depth for _, depth in fields_of(rpc.input_type)), default=0) < MAX_DEPTH


@OF_RPC
def test_no_list_is_hidden_in_a_map_or_a_nested_list(rpc: MethodDescriptor) -> None:
    """The entry count finds each list that the descriptors have."""

    def counted(lists: object) -> Iterator[str]:
        for field in lists.fields.values():  # type: ignore[attr-defined]
            if field.is_repeated:
                yield field.full_name
            if field.nested is not None:
                yield from counted(field.nested)

    expected = {field.full_name for field, _ in fields_of(rpc.input_type) if field.is_repeated}
    assert set(counted(lists_of(rpc.input_type))) == expected


def test_each_limit_belongs_to_an_existing_list() -> None:
    known = {f.full_name for rpc in RPCS for f, _ in fields_of(rpc.input_type) if f.is_repeated}
    assert set(request_bounds.ENTRY_LIMITS) <= known
    assert set(request_bounds.ENTRY_BYTES_LIMITS) <= known
    assert set(request_bounds.TOTAL_LIMITS) <= {rpc.input_type.full_name for rpc in RPCS}


@pytest.mark.parametrize("rpc", [rpc for rpc in RPCS if is_internal(method_name(rpc))])
def test_full_lists_fit_the_request_limit(rpc: MethodDescriptor) -> None:
    """The limits of the top-level lists add up to no more than the limit of all entries."""
    name = rpc.input_type.full_name
    at_top = [field for field, depth in fields_of(rpc.input_type) if depth == 0]
    limits = [request_bounds.entries_limit(f.full_name) for f in at_top if f.is_repeated]
    assert sum(limits) <= request_bounds.total_entries_limit(name)
