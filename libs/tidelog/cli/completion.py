"""Shell completion of names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

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

    async def topics(admin: Admin) -> _Names:
        return [(t.name, "") for t in await admin.list_topics(internal=bool(incomplete))]

    return [name for name, _ in _completed(context, incomplete, topics)]


def complete_broker(context: typer.Context, incomplete: str) -> _Names:
    async def brokers(admin: Admin) -> _Names:
        found = await admin.describe_brokers()
        return [(str(b.broker_id), f"{b.status} {b.address}") for b in found]

    return _completed(context, incomplete, brokers)


def complete_operation(context: typer.Context, incomplete: str) -> _Names:
    """Returns operations, the newest first."""
    return _completed(context, incomplete, _operations)


def complete_running_operation(context: typer.Context, incomplete: str) -> _Names:
    return _completed(context, incomplete, partial(_operations, states=("running", "cancelling")))


async def _operations(admin: Admin, states: Sequence[str] = ()) -> _Names:
    found = await admin.list_operations(states)
    return [(o.operation_id, f"{o.kind} {o.state}") for o in found]


def _completed(
    context: typer.Context, incomplete: str, query: Callable[[Admin], Awaitable[_Names]]
) -> _Names:
    """Returns names that begin with what was typed, each with its help.

    Returns none if the cluster does not answer: an error message would break the command line.
    """
    import asyncio

    from tidelog.cli.exit_status import ClusterUnreachableError, UsageError
    from tidelog.errors import TidelogError

    given = context.params
    session = session_of(context, given.get("bootstrap"), context_name=given.get("context_name"))
    try:
        names = asyncio.run(_queried(session, query))
    except (TidelogError, UsageError, ClusterUnreachableError, OSError, TimeoutError):
        return []
    return [(name, details) for name, details in names if name.startswith(incomplete)]


async def _queried(session: Session, query: Callable[[Admin], Awaitable[_Names]]) -> _Names:
    import asyncio

    async with asyncio.timeout(TIMEOUT_SECONDS), await session.admin() as admin:
        return await query(admin)


def partitions_argument(help_text: str) -> Any:
    return typer.Argument(
        metavar="TOPIC[/PARTITION]",
        help=help_text,
        show_default=False,
        autocompletion=complete_topic,
    )


def leaders_argument(help_text: str) -> Any:
    return typer.Argument(
        metavar="TOPIC/PARTITION=BROKER", help=help_text, autocompletion=complete_topic
    )


def _broker_argument(help_text: str) -> Any:
    return typer.Argument(
        metavar="BROKER", min=0, max=MAX_INT32, help=help_text, autocompletion=complete_broker
    )


def _operation_argument(complete: Callable[[typer.Context, str], _Names]) -> Any:
    return typer.Argument(metavar="OPERATION", help="Id of the operation.", autocompletion=complete)


TopicArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topic),
]
BrokerArgument = Annotated[int, _broker_argument("Id of the broker.")]
BrokersArgument = Annotated[list[int], _broker_argument("Ids of the brokers.")]
OperationArgument = Annotated[str, _operation_argument(complete_operation)]
RunningOperationArgument = Annotated[str, _operation_argument(complete_running_operation)]
