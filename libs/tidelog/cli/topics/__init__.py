"""`tidelog topics`: creates, shows, changes, deletes and recovers topics."""

from __future__ import annotations

import typer

from tidelog.cli.exit_status import EPILOG
from tidelog.cli.operating.help_epilog import BEGUN_FIELDS, help_epilog
from tidelog.cli.topics.changes import (
    ADD_JSON,
    ALTER_JSON,
    REMOVE_JSON,
    add_partitions,
    alter_config,
    remove_partitions,
    set_replication_factor,
)
from tidelog.cli.topics.deletion import DELETE_JSON, delete
from tidelog.cli.topics.listing import LIST_JSON, list_
from tidelog.cli.topics.recover import RECOVER_JSON, recover
from tidelog.cli.topics.topic_creation import CREATE_JSON, create
from tidelog.cli.topics.views import CONFIG_JSON, DESCRIBE_JSON, config, describe

app = typer.Typer(
    no_args_is_help=True,
    epilog=EPILOG,
    help="Create, show, change, delete and recover topics.",
)

app.command(
    epilog=help_epilog(
        "tidelog topics create sea -p 6 -c retention_ms=7d -c segment_bytes=64MiB",
        "tidelog topics create sea --partitions 6 --dry-run",
        "tidelog topics create sea --assignment 1,2:2,3:3,1",
        json=CREATE_JSON,
    )
)(create)
app.command(
    "list",
    epilog=help_epilog(
        "tidelog topics list",
        "tidelog topics list --rates 2",
        "tidelog topics list --unwell --brief",
        json=LIST_JSON,
    ),
)(list_)
app.command(epilog=help_epilog("tidelog topics describe sea", json=DESCRIBE_JSON))(describe)
app.command(
    epilog=help_epilog(
        "tidelog topics config sea", "tidelog topics config sea --set-only", json=CONFIG_JSON
    )
)(config)
app.command(
    epilog=help_epilog(
        "tidelog topics alter-config sea --set retention_ms=7d --dry-run",
        "tidelog topics alter-config sea --set retention_bytes=-1 --unset segment_ms",
        json=ALTER_JSON,
    )
)(alter_config)
app.command(
    epilog=help_epilog(
        "tidelog topics add-partitions sea --partitions 12 --dry-run",
        "tidelog topics add-partitions sea --partitions 12 --yes",
        json=ADD_JSON,
    )
)(add_partitions)
app.command(
    epilog=help_epilog(
        "tidelog topics remove-partitions sea --partitions 4 --dry-run",
        "tidelog topics remove-partitions sea --partitions 4",
        json=REMOVE_JSON,
    )
)(remove_partitions)
app.command(
    epilog=help_epilog(
        "tidelog topics set-replication-factor sea bay -r 3 --dry-run",
        "tidelog topics set-replication-factor sea -r 2 --yes --watch",
        json=BEGUN_FIELDS,
    )
)(set_replication_factor)
app.command(
    epilog=help_epilog(
        "tidelog topics delete sea --dry-run",
        "tidelog topics delete sea",
        "tidelog topics delete sea --yes",
        json=DELETE_JSON,
    )
)(delete)
app.command(epilog=help_epilog("tidelog topics recover sea --partition 3", json=RECOVER_JSON))(
    recover
)
