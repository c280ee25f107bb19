"""Names that the shell completes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from tidelog.cli.session import Session, session_of

# Longer than this nobody waits after a Tab.
TIMEOUT_SECONDS = 2.0


def complete_topic(context: typer.Context, incomplete: str) -> Iterable[str]:
    """Topics that begin with what was typed; none where the cluster cannot be asked,
    because a message in the middle of a command line helps nobody."""
    import asyncio

    from tidelog.cli.exit_status import ClusterUnreachableError, UsageError
    from tidelog.errors import TidelogError

    session = session_of(context, context.params.get("bootstrap"))
    try:
        names = asyncio.run(_topic_names(session, internal=bool(incomplete)))
    except (TidelogError, UsageError, ClusterUnreachableError, OSError, TimeoutError):
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _topic_names(session: Session, *, internal: bool) -> list[str]:
    """The cluster's own topics only where somebody has begun to type a name."""
    import asyncio

    async with asyncio.timeout(TIMEOUT_SECONDS), await session.admin() as admin:
        return [topic.name for topic in await admin.list_topics(internal=internal)]


TopicArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topic),
]
