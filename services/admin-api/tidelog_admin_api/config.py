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

# Each connection takes a file descriptor; a process has 1,024 by default. Each request needs a
# connection.
MAX_CONNECTIONS = 800

NameList = Annotated[list[str], NoDecode, BeforeValidator(split_list)]


class AdminApiConfig(ServiceConfig):
    bootstrap: AddressList = Field(
        default=["127.0.0.1:7501", "127.0.0.1:7502", "127.0.0.1:7503"],
        min_length=1,
        description="host:port of some brokers, separated by commas; the gateway finds the others",
    )
    controllers: AddressList = Field(
        default=[],
        description="host:port of controllers, separated by commas; explain queries them if no "
        "broker answers. Otherwise brokers name the controllers",
    )
    listen: Address = Field(
        default="127.0.0.1:7600", description="host:port to serve HTTP on; port 0: any free port"
    )
    metrics_listen: MetricsAddress | None = Field(
        default=METRICS_OFF,
        description="host:port to serve metrics on, in addition to GET /metrics at listen; or off",
    )
    allowed_hosts: NameList = Field(
        default=[],
        description="host names of the gateway, separated by commas, in addition to IP addresses, "
        "localhost and the host of advertised_address; requests to any other name that contains a "
        "dot are rejected, as are changes from pages under any other name",
    )
    console: bool = Field(default=True, description="whether to serve the web console at /")
    max_body_bytes: int = Field(
        default=2 << 20,
        ge=1_024,
        le=64 << 20,
        description="maximum size of a request body",
    )
    body_timeout_ms: int = Field(
        default=30_000,
        ge=100,
        le=300_000,
        description="a request is rejected if its body is not complete after this time",
    )
    request_timeout_ms: int = Field(
        default=330_000,
        ge=1_000,
        le=600_000,
        description="a request without an answer after this time gets status 504; longer than the "
        "largest valid timeout_ms of a request",
    )
    max_concurrent_requests: int = Field(
        default=256,
        ge=1,
        le=MAX_CONNECTIONS,
        description="maximum number of concurrent requests",
    )
    max_requests_per_client: int = Field(
        default=128,
        ge=1,
        le=MAX_CONNECTIONS,
        description="maximum number of concurrent requests of one client address, including "
        "streams; raise it if a proxy is in front of the gateway",
    )
    max_connections_per_client: int = Field(
        default=256,
        ge=1,
        le=MAX_CONNECTIONS,
        description="maximum number of connections of one client address; all clients together "
        f"have at most {MAX_CONNECTIONS}; raise it if a proxy is in front of the gateway",
    )
    max_concurrent_streams: int = Field(
        default=64,
        ge=1,
        le=MAX_CONNECTIONS,
        description="maximum number of open event streams; each also counts as a request",
    )

    max_concurrent_searches: int = Field(
        default=8,
        ge=1,
        le=MAX_CONNECTIONS,
        description="maximum number of searches of records that run at a time; each also counts as "
        "a request",
    )
    max_searches_per_client: int = Field(
        default=2,
        ge=1,
        le=MAX_CONNECTIONS,
        description="maximum number of searches of one client address that run at a time; raise it "
        "if a proxy is in front of the gateway",
    )

    @model_validator(mode="after")
    def _bounds_can_be_reached(self) -> Self:
        streams, requests = self.max_concurrent_streams, self.max_concurrent_requests
        if streams > requests:
            raise ValueError(
                f"max_concurrent_streams is {streams} and max_concurrent_requests is {requests}, "
                "but each stream counts as a request; raise max_concurrent_requests or lower "
                "max_concurrent_streams"
            )
        requests, connections = self.max_requests_per_client, self.max_connections_per_client
        if requests > connections:
            raise ValueError(
                f"max_requests_per_client is {requests} and max_connections_per_client is "
                f"{connections}, but each request needs a connection; raise "
                "max_connections_per_client or lower max_requests_per_client"
            )
        return self

    @property
    def browser_hosts(self) -> frozenset[str]:
        """Host names of pages that may send changes, in lower case and without ports."""
        own = (address.rpartition(":")[0] for address in (self.listen, self.address))
        return frozenset(name.lower() for name in ("localhost", *own, *self.allowed_hosts))

    @property
    def service(self) -> str:
        """The name of the service in logs and metrics."""
        return "admin-api"
