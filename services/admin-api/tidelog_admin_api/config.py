"""Configuration of the gateway."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from tidelog_runtime.config import (
    METRICS_OFF,
    Address,
    AddressList,
    MetricsAddress,
    ServiceConfig,
    split_list,
)

# Each connection takes a file descriptor, of which a process has 1,024 by default; and each request
# needs a connection.
MAX_CONNECTIONS = 800

NameList = Annotated[list[str], NoDecode, BeforeValidator(split_list)]


class AdminApiConfig(ServiceConfig):
    bootstrap: AddressList = Field(
        default=["127.0.0.1:7501", "127.0.0.1:7502", "127.0.0.1:7503"],
        min_length=1,
        description="host:port of some brokers, separated by commas; the others are found",
    )
    controllers: AddressList = Field(
        default=[],
        description="host:port of controllers, separated by commas, to be asked what is wrong "
        "where no broker answers any more; brokers name them otherwise",
    )
    listen: Address = Field(
        default="127.0.0.1:7600", description="host:port to serve HTTP on; port 0: any free one"
    )
    metrics_listen: MetricsAddress | None = Field(
        default=METRICS_OFF,
        description="host:port to serve metrics on besides GET /metrics at listen, or off",
    )
    allowed_hosts: NameList = Field(
        default=[],
        description="names by which the gateway is reached, separated by commas, besides "
        "addresses, localhost and the host of advertised_address; asked by another name with a dot "
        "it tells nothing, and a page under any other name may change nothing",
    )
    console: bool = Field(default=True, description="whether the web console is served at /")
    max_body_bytes: int = Field(
        default=2 << 20,
        ge=1_024,
        le=64 << 20,
        description="a request with a larger body is refused",
    )
    body_timeout_ms: int = Field(
        default=30_000,
        ge=100,
        le=300_000,
        description="a request whose body has not come in by then is refused",
    )
    request_timeout_ms: int = Field(
        default=330_000,
        ge=1_000,
        le=600_000,
        description="a request that has not been answered by then is answered with a 504; longer "
        "than any timeout_ms that a request may name",
    )
    max_concurrent_requests: int = Field(
        default=256,
        ge=1,
        le=MAX_CONNECTIONS,
        description="further requests are refused while so many are being answered",
    )
    max_requests_per_client: int = Field(
        default=128,
        ge=1,
        le=MAX_CONNECTIONS,
        description="maximum number of concurrent requests of one client address, streams among "
        "them; raise it where a proxy stands before the gateway",
    )
    max_connections_per_client: int = Field(
        default=256,
        ge=1,
        le=MAX_CONNECTIONS,
        description="further connections of one client address are refused while it has so many "
        f"of the {MAX_CONNECTIONS}; raise it where a proxy stands before the gateway",
    )
    max_concurrent_streams: int = Field(
        default=64,
        ge=1,
        le=MAX_CONNECTIONS,
        description="further streams of events are refused while so many are open; each is a "
        "request that is being answered",
    )

    @model_validator(mode="after")
    def _bounds_can_be_reached(self) -> Self:
        streams, requests = self.max_concurrent_streams, self.max_concurrent_requests
        if streams > requests:
            raise ValueError(
                f"max_concurrent_streams is {streams} and max_concurrent_requests {requests}, "
                "which counts streams, too; raise max_concurrent_requests or lower "
                "max_concurrent_streams"
            )
        requests, connections = self.max_requests_per_client, self.max_connections_per_client
        if requests > connections:
            raise ValueError(
                f"max_requests_per_client is {requests} and max_connections_per_client "
                f"{connections}, and each request takes a connection; raise "
                "max_connections_per_client or lower max_requests_per_client"
            )
        return self

    @property
    def browser_hosts(self) -> frozenset[str]:
        """Host names, lower case and without ports, under which pages may send changes."""
        own = (address.rpartition(":")[0] for address in (self.listen, self.address))
        return frozenset(name.lower() for name in ("localhost", *own, *self.allowed_hosts))

    @property
    def service(self) -> str:
        """The name of the service in log lines and metrics."""
        return "admin-api"
