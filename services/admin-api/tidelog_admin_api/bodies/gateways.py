"""Bodies of gateways, which controllers know by their announcements."""

from __future__ import annotations

from pydantic import Field

from tidelog_admin_api.bodies.base import AnswerBody, example


class LimitedClient(AnswerBody):
    address: str
    limit: str = Field(description="name of the limit that rejects its requests or connections")
    value: int = Field(description="what the limit allows")
    rejected: int = Field(description="how many were rejected since there was none for a minute")
    last_ms: int = Field(description="milliseconds since the last of them")


class ResourcePressure(AnswerBody):
    resource: str = Field(description="open_files, memory, cpu, or connections of one client")
    used: int = Field(
        description="files, bytes, connections, or milliseconds of waiting for the CPU in `limit`"
    )
    limit: int
    since_ms: int = Field(description="wall clock of the gateway, milliseconds since 1970")
    detail: str = Field(description="what uses it; empty: not known")


class AnnouncedGateway(AnswerBody):
    address: str = Field(description="host:port at which others reach it")
    host: str = Field(description="its machine or container")
    pid: int
    version: str
    started_at_ms: int = Field(description="wall clock, milliseconds since 1970")
    last_heard_ms: int = Field(
        description="milliseconds since its last announcement, which it sends every 2 seconds"
    )
    state: str = Field(description="alive; silent: for 10 seconds or longer; stopped: in order")
    limited_clients: list[LimitedClient] = Field(
        description="those at a limit of it within the last minute, at most 10, the last one first"
    )
    pressures: list[ResourcePressure] = Field(
        description="resources of which it was short when it was heard last"
    )


class GatewayPage(AnswerBody):
    model_config = example(
        items=[
            {
                "address": "127.0.0.1:7600",
                "host": "gate-1",
                "pid": 4711,
                "version": "0.1.0",
                "started_at_ms": 1795320000000,
                "last_heard_ms": 900,
                "state": "alive",
                "limited_clients": [],
                "pressures": [],
            }
        ],
        next_page_token="",
    )

    items: list[AnnouncedGateway]
    next_page_token: str = Field(description="empty: this is the last page")
