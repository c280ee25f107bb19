"""All dashboards, as files for provisioning Grafana."""

from __future__ import annotations

import json

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tidelog_dashboards.broker import broker
from tidelog_dashboards.controller import controller
from tidelog_dashboards.overview import overview
from tidelog_dashboards.replication_lag import replication_lag
from tidelog_dashboards.topic import topic


def files() -> dict[str, str]:
    """Returns the name and content of each file.

    A panel's id is its position, so that links to a panel remain valid.
    """
    built = {}
    for make in (overview, replication_lag, broker, controller, topic):
        dashboard = make().build()
        for number, panel in enumerate(dashboard.panels or [], start=1):
            panel.id_val = number
        name = (dashboard.uid or "").removeprefix("tidelog-")
        built[f"{name}.json"] = json.dumps(dashboard, cls=JSONEncoder, indent=2) + "\n"
    return built
