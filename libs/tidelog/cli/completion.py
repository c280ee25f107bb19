"""Shell completion of names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.session import Session, session_of
from tidelog.model import MAX_INT32

if TYPE_CHECKING:
    from tidelog.client import Admin

_Names = list[tuple[str, str]]

# Users do not wait longer than this after a Tab.
TIMEOUT_SECONDS = 2.0


def complete_topic(context: typer.Context, incomplete: str) -> Iterable[str]:
    """Returns topics that begin with what was typed. Internal topics are included only if
    something was typed."""

    async def ask(admin: Admin) -> _Names:
        topics = await admin.list_topics(internal=bool(incomplete))
        return [(topic.name, "") for topic in topics]

    return [name for name, _ in _completed(context, incomplete, ask)]


def complete_broker(context: typer.Context, incomplete: str) -> Iterable[tuple[str, str]]:
    async def ask(admin: Admin) -> _Names:
        brokers = await admin.describe_brokers()
        return [(str(b.broker_id), f"{b.status} {b.address}") for b in brokers]

    return _completed(context, incomplete, ask)


def complete_operation(context: typer.Context, incomplete: str) -> Iterable[tuple[str, str]]:
    """Returns operations, the newest first."""

    async def ask(admin: Admin) -> _Names:
        operations = await admin.list_operations()
        return [(o.operation_id, f"{o.kind} {o.state}") for o in operations]

    return _completed(context, incomplete, ask)


def complete_running_operation(
    context: typer.Context, incomplete: str
) -> Iterable[tuple[str, str]]:
    async def ask(admin: Admin) -> _Names:
        operations = await admin.list_operations(["running", "cancelling"])
        return [(o.operation_id, f"{o.kind} {o.state}") for o in operations]

    return _completed(context, incomplete, ask)


def _completed(
    context: typer.Context, incomplete: str, ask: Callable[[Admin], Awaitable[_Names]]
) -> _Names:
    """Returns names that begin with what was typed, each with its help.

    Returns none if the cluster does not answer: an error message would break the command line.
    """
    import asyncio

    from tidelog.cli.exit_status import ClusterUnreachableError, UsageError
    from tidelog.errors import TidelogError

    session = session_of(context, context.params.get("bootstrap"))
    try:
        names = asyncio.run(_asked(session, ask))
    except (TidelogError, UsageError, ClusterUnreachableError, OSError, TimeoutError):
        return []
    return [(name, told) for name, told in names if name.startswith(incomplete)]


async def _asked(session: Session, ask: Callable[[Admin], Awaitable[_Names]]) -> _Names:
    import asyncio

    async with asyncio.timeout(TIMEOUT_SECONDS), await session.admin() as admin:
        return await ask(admin)


TopicArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topic),
]
BrokerArgument = Annotated[
    int,
    typer.Argument(
        metavar="BROKER",
        min=0,
        max=MAX_INT32,
        help="Id of the broker.",
        autocompletion=complete_broker,
    ),
]
BrokersArgument = Annotated[
    list[int],
    typer.Argument(
        metavar="BROKER",
        min=0,
        max=MAX_INT32,
        help="Ids of the brokers.",
        autocompletion=complete_broker,
    ),
]
OperationArgument = Annotated[
    str,
    typer.Argument(
        metavar="OPERATION", help="Id of the operation.", autocompletion=complete_operation
    ),
]
