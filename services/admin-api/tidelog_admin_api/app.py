"""Assembles the gateway: routers, middleware and background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI

from tidelog.version import installed_version
from tidelog_admin_api import error_handlers, health, metrics, openapi
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.console_files import add_console
from tidelog_admin_api.dependencies import Dependencies, Gateway
from tidelog_admin_api.event_hub import EventHub
from tidelog_admin_api.history_sampler import HistorySampler
from tidelog_admin_api.limits import Limits, Usage
from tidelog_admin_api.metrics import GatewayMetrics
from tidelog_admin_api.middleware import (
    AccessLogMiddleware,
    ErrorMiddleware,
    HeadMiddleware,
    MetricsMiddleware,
    RequestContextMiddleware,
    SecurityHeadersMiddleware,
)
from tidelog_admin_api.overviews import Overviews
from tidelog_admin_api.record_sender import RecordSender
from tidelog_admin_api.resources import (
    brokers,
    cluster,
    events,
    history,
    leaders,
    operations,
    partitions,
    records,
    recovery,
    scrub,
    search,
    topic_changes,
    topics,
)
from tidelog_admin_api.strict_params import reject_unknown
from tidelog_admin_api.timelines import Timelines

ROUTERS = (
    health.router,
    metrics.router,
    cluster.router,
    cluster.gateways,
    # Before the routes of /v1/brokers/{broker_id}, which would match "scrub" as an id.
    scrub.router,
    brokers.router,
    topics.router,
    topic_changes.router,
    topic_changes.factors,
    partitions.router,
    operations.throttle_router,
    operations.router,
    operations.moves_router,
    leaders.router,
    recovery.router,
    events.router,
    cluster.explanations,
    history.router,
    records.router,
    search.router,
)


def create_app(dependencies: Dependencies, config: AdminApiConfig) -> FastAPI:
    usage = Usage()
    sampler = HistorySampler(dependencies.states.replicas, dependencies.clock)
    overviews = Overviews(dependencies.admin, dependencies.explain, sampler, dependencies.clock)
    hub = EventHub(dependencies.events, dependencies.clock)
    sender = RecordSender(dependencies.producers)
    timelines = Timelines(dependencies.events, dependencies.published, dependencies.clock)
    gateway_metrics = GatewayMetrics(config.cluster, usage, overviews)

    @asynccontextmanager
    async def background_tasks(_: FastAPI) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(overviews.run(), name="overviews"),
            asyncio.create_task(gateway_metrics.watch.run(), name="loop-watch"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await hub.close()
            await timelines.close()
            await sender.close()

    app = FastAPI(
        title=openapi.TITLE,
        description=openapi.DESCRIPTION,
        version=installed_version(),
        openapi_tags=openapi.TAGS,
        generate_unique_id_function=openapi.operation_id,
        lifespan=background_tasks,
        dependencies=[Depends(reject_unknown)],
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.gateway = Gateway(
        config, dependencies, usage, overviews, sampler, hub, sender, timelines
    )
    app.state.metrics = gateway_metrics
    for router in ROUTERS:
        app.include_router(router)
    if config.console:
        add_console(app)
    error_handlers.install(app)
    openapi.install(app)
    # The middleware that is added last is the outermost.
    app.add_middleware(HeadMiddleware)
    app.add_middleware(Limits, bounds=config, usage=usage)
    app.add_middleware(ErrorMiddleware)
    app.add_middleware(AccessLogMiddleware, seconds=gateway_metrics.seconds)
    app.add_middleware(RequestContextMiddleware, rng=dependencies.rng)
    app.add_middleware(SecurityHeadersMiddleware)
    app.add_middleware(MetricsMiddleware, metrics=gateway_metrics)
    return app
