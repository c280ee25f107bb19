"""`tidelog context`: names clusters, and selects the one that commands connect to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Annotated

import typer

from tidelog.cli.connection import BOOTSTRAP_VARIABLE, CLUSTER_FILE
from tidelog.cli.contexts import (
    CONTEXT_VARIABLE,
    Context,
    Contexts,
    contexts_path,
    load_contexts,
    save_contexts,
)
from tidelog.cli.exit_status import EPILOG, UsageError
from tidelog.cli.operating.help_epilog import help_epilog
from tidelog.cli.output import write_json, write_line, write_note, write_table
from tidelog.cli.session import (
    BootstrapOption,
    ContextOption,
    JsonOption,
    ending_with_a_status,
    session_of,
)

app = typer.Typer(no_args_is_help=True, epilog=EPILOG)

_FIELDS = "bootstrap, controllers (may be empty), protected"


def complete_context(incomplete: str) -> Iterable[str]:
    try:
        known = load_contexts(contexts_path()).by_name
    except UsageError:  # A message would break the command line.
        return []
    return [name for name in sorted(known) if name.startswith(incomplete)]


_NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=complete_context),
]


@app.callback()
def context() -> None:
    """Name clusters, and select the one that commands connect to.

    A context has the addresses of a cluster. Commands use the first of these: --bootstrap;
    --context; the variable TIDELOG_BOOTSTRAP; the variable TIDELOG_CONTEXT; the current context,
    which use selects; the local cluster's file; the default ports of this machine.
    """


@app.command(
    "list",
    epilog=help_epilog(
        "tidelog context list",
        json=f"path (of the file), current (empty: none), contexts [name, {_FIELDS}].",
    ),
)
def list_(typer_context: typer.Context, as_json: JsonOption = False) -> None:
    """List the contexts and the current one."""
    session = session_of(typer_context, as_json=as_json)
    with ending_with_a_status(as_json=session.as_json):
        contexts = load_contexts(contexts_path())
        named = sorted(contexts.by_name.items())
        if session.as_json:
            items = [{"name": name} | asdict(one) for name, one in named]
            head = {"path": str(contexts.path), "current": contexts.current}
            write_json(head | {"contexts": items})
        elif not named:
            write_note(
                "There are no contexts yet; add one with: tidelog context add NAME --bootstrap "
                "HOST:PORT"
            )
        else:
            write_table(
                ("context", "current", "bootstrap", "controllers", "protected"),
                [
                    (
                        name,
                        "yes" if name == contexts.current else "-",
                        one.bootstrap,
                        one.controllers or "-",
                        "yes" if one.protected else "-",
                    )
                    for name, one in named
                ],
            )


@app.command(
    epilog=help_epilog(
        "tidelog context show",
        "tidelog --context staging context show",
        json="context (empty: none applies), protected, bootstrap, source (what names the "
        "addresses), path (of the file with the contexts).",
    )
)
def show(
    typer_context: typer.Context,
    bootstrap: BootstrapOption = None,
    context_name: ContextOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which cluster commands connect to, and why."""
    session = session_of(typer_context, bootstrap, as_json, context_name)
    with ending_with_a_status(as_json=session.as_json):
        found = session.found_bootstrap()
        protected = found.context is not None and found.context.protected
        if session.as_json:
            write_json(
                {
                    "context": found.context_name,
                    "protected": protected,
                    "bootstrap": found.addresses,
                    "source": found.source,
                    "path": str(contexts_path()),
                }
            )
            return
        mark = ", protected" if protected else ""
        write_line(f"Context    {found.context_name or 'none'}{mark}")
        write_line(f"Bootstrap  {found.addresses}")
        write_line(f"From       {found.source}")


@app.command(
    epilog=help_epilog(
        "tidelog context add prod --bootstrap broker-1:7500,broker-2:7500 --protected",
        "tidelog context add staging --bootstrap 10.0.0.7:7500 --use",
    )
)
def add(
    typer_context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new context.")],
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            metavar="HOST:PORT,…",
            show_default=False,
            help="Brokers of the cluster. It must be given.",
        ),
    ] = None,
    controllers: Annotated[
        str,
        typer.Option(
            "--controllers",
            metavar="HOST:PORT,…",
            show_default=False,
            help="Controllers of the cluster: explain and trace ask them while no broker answers.",
        ),
    ] = "",
    protected: Annotated[
        bool,
        typer.Option(
            "--protected",
            help="Destructive commands ask for the context's name, or need --context NAME.",
        ),
    ] = False,
    use_it: Annotated[
        bool, typer.Option("--use", help="Also make it the current context.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--replace", help="Replace a context of this name.")
    ] = False,
) -> None:
    """Add a context. Nothing is connected to."""
    session = session_of(typer_context)
    with ending_with_a_status(as_json=session.as_json):
        given = bootstrap or session.bootstrap
        if not given:
            raise UsageError("name the cluster's brokers, as --bootstrap 127.0.0.1:7500")
        contexts = load_contexts(contexts_path())
        if name in contexts.by_name and not overwrite:
            raise UsageError(f"there is a context {name!r} already; give --replace to replace it")
        new = Context(_checked("--bootstrap", given), "", protected)
        if controllers:
            new = replace(new, controllers=_checked("--controllers", controllers))
        contexts = contexts.with_added(name, new)
        if use_it:
            contexts = replace(contexts, current=name)
        save_contexts(contexts)
        now = " and is the current one" if use_it else ""
        write_line(f"Context {name} is in {contexts.path}{now}.")


@app.command(epilog=help_epilog("tidelog context use prod", "tidelog context use --none"))
def use(
    typer_context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]",
            help="Name of the context.",
            show_default=False,
            autocompletion=complete_context,
        ),
    ] = "",
    none: Annotated[bool, typer.Option("--none", help="Make no context the current one.")] = False,
) -> None:
    """Make a context the current one, for all later commands of this user."""
    session = session_of(typer_context)
    with ending_with_a_status(as_json=session.as_json):
        if none == bool(name):
            raise UsageError("give the name of a context, or --none")
        contexts = load_contexts(contexts_path())
        if none:
            save_contexts(replace(contexts, current=""))
            write_line("No context is the current one.")
            return
        chosen = contexts.get(name)
        save_contexts(replace(contexts, current=name))
        mark = " It is protected." if chosen.protected else ""
        write_line(f"The current context is {name} ({chosen.bootstrap}).{mark}")
        _note_what_overrides()


@app.command(epilog=help_epilog("tidelog context remove staging"))
def remove(typer_context: typer.Context, name: _NameArgument) -> None:
    """Remove a context. The cluster is not changed."""
    session = session_of(typer_context)
    with ending_with_a_status(as_json=session.as_json):
        contexts: Contexts = load_contexts(contexts_path())
        left = contexts.without(name)
        save_contexts(left)
        write_line(f"Removed context {name}.")
        if contexts.current == name:
            write_note("It was the current one; none is now.")


def _checked(option: str, addresses: str) -> str:
    """Returns the addresses without spaces. Raises `UsageError`."""
    from tidelog.client.cluster_metadata import parse_bootstrap
    from tidelog.errors import TidelogError

    try:
        return ",".join(parse_bootstrap(addresses))
    except TidelogError as error:
        raise UsageError(f"{option}: {error.message}") from error


def _note_what_overrides() -> None:
    import os

    for variable in (BOOTSTRAP_VARIABLE, CONTEXT_VARIABLE):
        if os.environ.get(variable):
            write_note(f"Commands still use the variable {variable}, which overrides it.")
            return
    if CLUSTER_FILE.is_file():
        write_note(f"Commands use it also in this directory, although {CLUSTER_FILE} is here.")
