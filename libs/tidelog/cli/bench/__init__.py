"""`tidelog bench`: measures producers and consumers of a running cluster."""

from __future__ import annotations

import typer

from tidelog.cli.bench.commands import CONSUME_JSON, PRODUCE_JSON, consume, produce
from tidelog.cli.exit_status import EPILOG
from tidelog.cli.operating.help_epilog import help_epilog

app = typer.Typer(
    no_args_is_help=True,
    epilog=EPILOG,
    help="Measure how fast a cluster takes and returns records.",
)
app.command(
    epilog=help_epilog(
        "tidelog bench produce load --duration 30s --record-size 1KiB",
        "tidelog bench produce load --rate 2000 --keys 1000 --acks all --yes",
        "tidelog bench produce load --records 1000000 --compression zstd --json",
        json=PRODUCE_JSON,
    )
)(produce)
app.command(
    epilog=help_epilog(
        "tidelog bench consume load",
        "tidelog bench consume load --from end --duration 30s",
        "tidelog bench consume load --records 1000000 --json",
        json=CONSUME_JSON,
    )
)(consume)
