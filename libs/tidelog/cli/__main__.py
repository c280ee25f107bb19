"""Entry point of the command `tidelog`. `exit_status` documents its exit statuses.

Commands import what they need beyond the standard library and typer when they run, so that
`--help` and completion are fast.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

from tidelog.missing_extras import exit_not_installed, is_installed

if not is_installed("typer", "rich", "yaml"):
    exit_not_installed("tidelog", "tidelog[cli]")

import typer

from tidelog.cli import (
    backup,
    bench,
    brokers,
    cluster,
    context,
    leaders,
    operations,
    recovery,
    throttle,
    topics,
)
from tidelog.cli.apply import APPLY_EPILOG, apply
from tidelog.cli.check_history import check_history
from tidelog.cli.connection import BOOTSTRAP_VARIABLE
from tidelog.cli.consume import consume
from tidelog.cli.contexts import CONTEXT_VARIABLE
from tidelog.cli.dump_log import dump_log
from tidelog.cli.exit_status import EPILOG, ExitStatus
from tidelog.cli.explain import explain
from tidelog.cli.json_errors import CommandLine
from tidelog.cli.operating.command_options import REQUESTED_BY_VARIABLE
from tidelog.cli.operating.help_epilog import BEGUN_FIELDS, help_epilog
from tidelog.cli.output import write_error, write_line
from tidelog.cli.produce import produce
from tidelog.cli.reassign import reassign, rebalance
from tidelog.cli.session import BootstrapOption, ContextOption, JsonOption, session_of
from tidelog.cli.streams import OutputError, prepare_streams, stop_writing
from tidelog.cli.trace import trace

# If set, an internal error prints its traceback.
DEBUG_VARIABLE = "TIDELOG_DEBUG"

app = typer.Typer(
    name="tidelog",
    cls=CommandLine,
    no_args_is_help=True,
    # Plain help: rendering by rich would take longer than all the rest.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=help_epilog(
        "tidelog topics list --bootstrap 127.0.0.1:7501",
        "tidelog --context prod explain",
        "tidelog --install-completion",
        json=(
            "Each command's help names the fields. Of an error: error [code, message, retriable, "
            "outcome_unknown], on stdout as everything else, and its message on stderr. consume, "
            "trace, dump-log and operations watch print a document a line, and errors on stderr "
            "alone.",
        ),
        environment={
            BOOTSTRAP_VARIABLE: "brokers to connect to first, as --bootstrap",
            CONTEXT_VARIABLE: "context with the addresses of the cluster, as --context",
            REQUESTED_BY_VARIABLE: "name of the requester, as --requested-by",
            DEBUG_VARIABLE: "if set, an internal error prints its traceback",
        },
    ),
    help="Manage a Tidelog cluster, and write and read its topics.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from tidelog.version import installed_version

        write_line(f"tidelog {installed_version()}")
        raise typer.Exit


@app.callback()
def tidelog(
    typer_context: typer.Context,
    bootstrap: BootstrapOption = None,
    context_name: ContextOption = None,
    as_json: JsonOption = False,
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Manage a Tidelog cluster, and write and read its topics."""
    typer_context.obj = session_of(typer_context, bootstrap, as_json, context_name)


app.add_typer(context.app, name="context")
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.command(epilog=APPLY_EPILOG)(apply)
app.add_typer(brokers.app, name="brokers")
app.add_typer(leaders.app, name="leaders")
app.command(
    epilog=help_epilog(
        "tidelog reassign sea/0=4,2 sea/1=2,4 --dry-run",
        "tidelog reassign --file plan.json --operation-id by-hand --yes --watch",
        "tidelog rebalance --dry-run --json | tidelog reassign --file - --yes",
        json=BEGUN_FIELDS,
    )
)(reassign)
app.command(
    epilog=help_epilog(
        "tidelog rebalance --dry-run",
        "tidelog rebalance --operation-id evening --yes --watch",
        "tidelog rebalance --dry-run --json > plan.json",
        json=BEGUN_FIELDS,
    )
)(rebalance)
app.add_typer(throttle.app, name="throttle")
app.add_typer(operations.app, name="operations")
app.add_typer(recovery.app, name="recovery")
app.add_typer(backup.app, name="backup")
app.command(epilog=EPILOG)(produce)
app.command(epilog=EPILOG)(consume)
app.add_typer(bench.app, name="bench")
app.command(epilog=EPILOG)(trace)
app.command(epilog=EPILOG)(explain)
app.command("dump-log", epilog=EPILOG)(dump_log)
app.command("check-history", epilog=EPILOG)(check_history)


def main() -> None:
    # gRPC's own log lines about connections do not help users of the command.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    prepare_streams()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        stop_writing()
    except OutputError as error:
        write_error(str(error))
        sys.exit(ExitStatus.FAILED)
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        write_error(
            f"internal error: {type(error).__name__}: {error}\n"
            f"{DEBUG_VARIABLE}=1 prints the traceback; please report the error with it"
        )
        sys.exit(ExitStatus.FAILED)


if __name__ == "__main__":
    main()
