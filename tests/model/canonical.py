"""Gives equal situations equal states: incarnations are renumbered from 1 for each broker.

Only their order counts, and what they are compared with. So a `whole_since` between two named
incarnations is equivalent to the later of them, and one beyond all of them means the next
incarnation.
"""

from __future__ import annotations

from .values import (
    NEXT_INCARNATION,
    UNTIL_ADMITTED,
    Command,
    ElectionWrite,
    FetchRequest,
    Ghost,
    IsrWrite,
    LeaderState,
    MemberKey,
    Message,
    Progress,
    Registered,
    Registrations,
    Replica,
    Store,
    Value,
)

# Named incarnations, as bits, of brokers 1, 2 and 3. Bit 0 is no incarnation.
Masks = tuple[int, int, int]
# New numbers by old ones, of brokers 1, 2 and 3.
Renaming = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _of_members(masks: list[int], *groups: tuple[MemberKey, ...]) -> None:
    for group in groups:
        for broker, incarnation in group:
            masks[broker - 1] |= 1 << incarnation


def _of_value(masks: list[int], value: Value | None) -> None:
    if value is not None:
        _of_members(masks, value.isr, value.eligible)


def of_store(store: Store) -> Masks:
    masks = [0, 0, 0]
    _of_value(masks, store.value)
    for registrations in (store.registered, store.seen, store.noticed):
        for index, registered in enumerate(registrations or ()):
            if registered is not None:
                masks[index] |= 1 << registered.incarnation
    return masks[0], masks[1], masks[2]


def of_replica(replica: Replica) -> Masks:
    masks = [0, 0, 0]
    masks[replica.broker - 1] |= (
        1 << replica.incarnation | 1 << replica.own | 1 << replica.registering
    )
    _of_value(masks, replica.value)
    if replica.leading is not None:
        _of_value(masks, replica.leading.proposed)
        for index, progress in enumerate(replica.leading.followers):
            masks[index] |= 1 << progress.incarnation
    return masks[0], masks[1], masks[2]


def of_messages(messages: tuple[Message, ...]) -> Masks:
    masks = [0, 0, 0]
    for message in messages:
        match message:
            case FetchRequest(_, follower, incarnation, _):
                masks[follower - 1] |= 1 << incarnation
            case IsrWrite(_, value, joiners):
                _of_value(masks, value)
                _of_members(masks, joiners)
            case ElectionWrite(_, value, _):
                _of_value(masks, value)
            case Command(_, broker, incarnation, value, _, _, _):
                masks[broker - 1] |= 1 << incarnation
                _of_value(masks, value)
            case _:
                pass
    return masks[0], masks[1], masks[2]


def renaming(mask: int) -> tuple[int, ...]:
    """Returns new numbers by old ones up to UNTIL_ADMITTED.

    An incarnation that is not named gets the number of the next named one, and beyond them all
    NEXT_INCARNATION.
    """
    incarnations = [
        incarnation for incarnation in range(1, NEXT_INCARNATION) if mask >> incarnation & 1
    ]
    table = [0]
    for old in range(1, NEXT_INCARNATION):
        rank = sum(1 for incarnation in incarnations if incarnation < old)
        table.append(rank + 1 if rank < len(incarnations) else NEXT_INCARNATION)
    return (*table, NEXT_INCARNATION, UNTIL_ADMITTED)


def _members(group: tuple[MemberKey, ...], to: Renaming) -> tuple[MemberKey, ...]:
    return tuple((broker, to[broker - 1][incarnation]) for broker, incarnation in group)


def _value(value: Value, to: Renaming) -> Value:
    return value._replace(isr=_members(value.isr, to), eligible=_members(value.eligible, to))


def _registrations(registrations: Registrations, to: Renaming) -> Registrations:
    renamed = [
        None if r is None else Registered(table[r.incarnation], r.running, table[r.whole])
        for r, table in zip(registrations, to, strict=True)
    ]
    return renamed[0], renamed[1], renamed[2]


def rename_store(store: Store, to: Renaming) -> Store:
    return store._replace(
        value=_value(store.value, to),
        registered=_registrations(store.registered, to),
        seen=None if store.seen is None else _registrations(store.seen, to),
        noticed=None if store.noticed is None else _registrations(store.noticed, to),
    )


def rename_replica(replica: Replica, to: Renaming) -> Replica:
    table = to[replica.broker - 1]
    whole = table[replica.whole]
    leading = replica.leading
    if leading is not None:
        leading = LeaderState(
            leading.epoch_start,
            tuple(
                Progress(to[index][progress.incarnation], progress.log_end)
                for index, progress in enumerate(leading.followers)
            ),
            None if leading.proposed is None else _value(leading.proposed, to),
        )
    spare = replica.spare
    if spare is not None:
        spare_whole = table[spare.whole]
        spare = spare._replace(whole=0 if spare_whole == NEXT_INCARNATION else spare_whole)
    return replica._replace(
        incarnation=table[replica.incarnation],
        own=table[replica.own],
        registering=table[replica.registering],
        whole=0 if whole == NEXT_INCARNATION else whole,
        value=None if replica.value is None else _value(replica.value, to),
        leading=leading,
        spare=spare,
    )


def rename_messages(messages: tuple[Message, ...], to: Renaming) -> tuple[Message, ...]:
    renamed: list[Message] = []
    for message in messages:
        match message:
            case FetchRequest(_, follower, incarnation, _):
                renamed.append(message._replace(incarnation=to[follower - 1][incarnation]))
            case IsrWrite(_, value, joiners):
                renamed.append(
                    message._replace(value=_value(value, to), joiners=_members(joiners, to))
                )
            case ElectionWrite(_, value, _):
                renamed.append(message._replace(value=_value(value, to)))
            case Command(_, broker, incarnation, value, _, _, _):
                renamed.append(
                    message._replace(
                        incarnation=to[broker - 1][incarnation], value=_value(value, to)
                    )
                )
            case _:
                renamed.append(message)
    return tuple(sorted(renamed, key=repr))


def rename_ghost(ghost: Ghost, to: Renaming) -> Ghost:
    sound = [table[incarnation] for table, incarnation in zip(to, ghost.sound, strict=True)]
    return ghost._replace(sound=(sound[0], sound[1], sound[2]))
