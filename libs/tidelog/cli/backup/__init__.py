"""`tidelog backup`: copies topics into a directory, checks it, and restores it."""

from __future__ import annotations

import typer

from tidelog.cli.backup.checks import SHOW_JSON, VERIFY_JSON, show, verify
from tidelog.cli.backup.creation import CREATE_JSON, create
from tidelog.cli.backup.restoration import RESTORE_JSON, restore
from tidelog.cli.exit_status import EPILOG
from tidelog.cli.operating.help_epilog import help_epilog

app = typer.Typer(
    no_args_is_help=True,
    epilog=EPILOG,
    help="Back up topics into a directory, check it, and restore it.",
)

app.command(
    epilog=help_epilog(
        "tidelog backup create /backups/monday",
        "tidelog backup create /backups/monday --incremental --max-rate 50MiB",
        "tidelog backup create /backups/sea --topics 'sea*' --topics bay",
        json=CREATE_JSON,
    )
)(create)
app.command(
    epilog=help_epilog(
        "tidelog backup restore /backups/monday",
        "tidelog backup restore /backups/monday --rename sea=old-sea",
        json=RESTORE_JSON,
    )
)(restore)
app.command(
    epilog=help_epilog(
        "tidelog backup verify /backups/monday",
        "tidelog backup verify /backups/monday --against",
        json=VERIFY_JSON,
    )
)(verify)
app.command(
    epilog=help_epilog(
        "tidelog backup show /backups/monday",
        "tidelog backup show /backups/monday --partitions",
        json=SHOW_JSON,
    )
)(show)
