"""Named clusters: their file, which one a command uses, and protected ones."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidelog.cli.__main__ import app
from tidelog.cli.connection import Bootstrap, find_bootstrap
from tidelog.cli.contexts import (
    MAX_CONTEXTS,
    Context,
    Contexts,
    contexts_path,
    load_contexts,
    save_contexts,
)
from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.session import Session
from unit.cli.conftest import Commands
from unit.cli.test_connection import local_cluster

PROD = Context("p-1:7500,p-2:7500", "c-1:7400", protected=True)
DEV = Context("127.0.0.1:7501")
# Nothing listens there.
NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration directory, and a directory without a local cluster."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in ("TIDELOG_BOOTSTRAP", "TIDELOG_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def run(*arguments: str, interactive: bool = False, input_: str | None = None) -> Result:
    session = Session(interactive=interactive)
    return CliRunner().invoke(app, list(arguments), obj=session, input=input_)


def saved(current: str = "", **contexts: Context) -> Contexts:
    kept = Contexts(contexts_path(), current, contexts)
    save_contexts(kept)
    return kept


# The file.


def test_contexts_are_read_as_they_were_written() -> None:
    kept = saved("prod", prod=PROD, dev=DEV)
    assert load_contexts(contexts_path()) == kept


def test_the_file_is_in_the_users_configuration_and_only_its_owner_reads_it(home: Path) -> None:
    saved(dev=DEV)
    path = home / "config" / "tidelog" / "contexts.toml"
    assert contexts_path() == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["contexts.toml"]


def test_a_failed_write_leaves_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    saved(dev=DEV)
    before = contexts_path().read_text()

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        saved(prod=PROD)
    assert contexts_path().read_text() == before
    assert len(list(contexts_path().parent.iterdir())) == 1


def test_a_link_to_the_file_stays_a_link(home: Path) -> None:
    saved(dev=DEV)
    elsewhere = home / "contexts.toml"
    contexts_path().rename(elsewhere)
    contexts_path().symlink_to(elsewhere)
    saved(prod=PROD)
    assert contexts_path().is_symlink()
    assert "prod" in elsewhere.read_text()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("contexts = 3", "'contexts' is to be a table"),
        ('current = "x"', "there is no such context"),
        ("[contexts.x]\n", "contexts.x: 'bootstrap' is to be a string"),
        ('[contexts.x]\nbootstrap = "a:1"\nport = 3', "unknown key 'port'"),
        ('[contexts.x]\nbootstrap = "a:1"\nprotected = "yes"', "'protected' is to be true"),
        ('[contexts."a b"]\nbootstrap = "a:1"', "the context name 'a b' is invalid"),
        ("current = ", "Invalid value"),
        ("\udcff", "can't decode"),
    ],
)
def test_an_invalid_file_is_rejected_with_its_problem(content: str, problem: str) -> None:
    contexts_path().parent.mkdir(parents=True)
    contexts_path().write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"contexts\.toml cannot be read") as raised:
        load_contexts(contexts_path())
    assert problem in str(raised.value)


def test_the_number_of_contexts_is_bounded() -> None:
    full = Contexts(contexts_path(), "", {f"c{n}": DEV for n in range(MAX_CONTEXTS)})
    with pytest.raises(UsageError, match="which is the most"):
        full.with_added("one-more", DEV)
    assert len(full.with_added("c0", PROD).by_name) == MAX_CONTEXTS


# Which source of addresses is used.

FROM_VARIABLE = {"TIDELOG_BOOTSTRAP": "v:1"}
NAMED_BY_VARIABLE = {"TIDELOG_CONTEXT": "dev"}


@pytest.mark.parametrize(
    ("given", "context", "environment", "found"),
    [
        ("flag:1", "prod", FROM_VARIABLE | NAMED_BY_VARIABLE, "flag:1"),
        (None, "prod", FROM_VARIABLE | NAMED_BY_VARIABLE, PROD.bootstrap),
        (None, None, FROM_VARIABLE | NAMED_BY_VARIABLE, "v:1"),
        (None, None, NAMED_BY_VARIABLE, DEV.bootstrap),
        (None, None, {}, PROD.bootstrap),
    ],
)
def test_a_flag_precedes_a_variable_and_that_the_current_context(
    given: str | None, context: str | None, environment: dict[str, str], found: str, home: Path
) -> None:
    local_cluster(home / "work")
    kept = Contexts(contexts_path(), "prod", {"prod": PROD, "dev": DEV})
    bootstrap = find_bootstrap(given, environment, home / "work", context, lambda: kept)
    assert bootstrap.addresses == found


def test_without_a_current_context_the_local_cluster_is_used(home: Path) -> None:
    path = local_cluster(home / "work")
    kept = Contexts(contexts_path(), "", {"dev": DEV})
    found = find_bootstrap(None, {}, home / "work", None, lambda: kept)
    assert found.source == str(path)


def test_a_source_that_precedes_contexts_does_not_read_their_file() -> None:
    def unread() -> Contexts:
        raise AssertionError

    assert find_bootstrap("a:1", {}, Path(), None, unread) == Bootstrap("a:1", "--bootstrap")
    assert find_bootstrap(None, FROM_VARIABLE, Path(), None, unread).addresses == "v:1"


def test_the_controllers_of_a_context_are_known_services() -> None:
    saved("prod", prod=PROD)
    assert Session().service_addresses() == ["p-1:7500", "p-2:7500", "c-1:7400"]


def test_an_unknown_context_lists_the_known_ones() -> None:
    saved(prod=PROD, dev=DEV)
    result = run("--context", "prdo", "topics", "list")
    assert result.exit_code == ExitStatus.USAGE
    assert "there is no context 'prdo'" in result.stderr
    assert "the contexts are dev, prod" in result.stderr


def test_an_empty_context_does_not_select_another_cluster() -> None:
    saved("prod", prod=PROD)
    result = run("--context", "", "topics", "list")
    assert result.exit_code == ExitStatus.USAGE
    assert "--context is empty" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "source"),
    [
        (("topics", "list"), "the current context prod of "),
        (("topics", "list", "--context", "dev"), "context dev of "),
        (("--context", "dev", "explain"), "context dev of "),
    ],
)
def test_an_unreachable_cluster_is_reported_with_the_context_that_names_it(
    arguments: tuple[str, ...], source: str
) -> None:
    saved("prod", prod=Context(NOWHERE), dev=Context(NOWHERE))
    result = run(*arguments)
    assert result.exit_code == ExitStatus.UNREACHABLE
    assert f"from {source}{contexts_path()}" in result.stderr


# Commands.


def test_contexts_are_added_selected_shown_and_removed() -> None:
    added = run(
        *("context", "add", "prod", "--bootstrap", "p-1:7500, p-2:7500"),
        *("--controllers", "c-1:7400", "--protected", "--use"),
    )
    assert added.exit_code == ExitStatus.DONE, added.stderr
    assert load_contexts(contexts_path()).by_name == {"prod": PROD}
    run("context", "add", "dev", "--bootstrap", "127.0.0.1:7501")
    listed = json.loads(run("context", "list", "--json").stdout)
    assert listed["current"] == "prod"
    assert [each["name"] for each in listed["contexts"]] == ["dev", "prod"]
    assert "The current context is dev" in run("context", "use", "dev").stdout
    shown = json.loads(run("context", "show", "--json").stdout)
    assert (shown["context"], shown["bootstrap"]) == ("dev", "127.0.0.1:7501")
    removed = run("context", "remove", "dev")
    assert "It was the current one" in removed.stderr
    assert load_contexts(contexts_path()) == Contexts(contexts_path(), "", {"prod": PROD})


def test_no_context_is_current_after_use_none() -> None:
    saved("prod", prod=PROD)
    assert run("context", "use", "--none").exit_code == ExitStatus.DONE
    assert load_contexts(contexts_path()).current == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["add", "prod"], "name the cluster's brokers"),
        (["add", "prod", "--bootstrap", "p-1"], "--bootstrap: bootstrap address 'p-1' is not"),
        (["add", "prod", "--bootstrap", "p:1", "--controllers", "x"], "--controllers: "),
        (["add", "a b", "--bootstrap", "p:1"], "the context name 'a b' is invalid"),
        (["add", "dev", "--bootstrap", "p:1"], "give --replace"),
        (["use", "prod"], "there is no context 'prod'"),
        (["use"], "give the name of a context, or --none"),
        (["use", "dev", "--none"], "give the name of a context, or --none"),
        (["remove", "prod"], "there is no context 'prod'"),
    ],
)
def test_wrong_usage_says_what_is_valid(arguments: list[str], problem: str) -> None:
    saved(dev=DEV)
    result = run("context", *arguments)
    assert result.exit_code == ExitStatus.USAGE
    assert problem in result.stderr
    assert load_contexts(contexts_path()).by_name == {"dev": DEV}


def test_a_variable_that_overrides_the_current_context_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved(dev=DEV)
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "v:1")
    assert "the variable TIDELOG_BOOTSTRAP" in run("context", "use", "dev").stderr
    shown = run("context", "show").stdout.splitlines()
    assert shown == ["Context    none", "Bootstrap  v:1", "From       TIDELOG_BOOTSTRAP"]


# Protected contexts.


@pytest.fixture
def protected(commands: Commands) -> Commands:
    saved("prod", prod=Context(",".join(commands.cluster.bootstrap()), protected=True))
    return commands


def test_yes_alone_changes_nothing_in_a_protected_context(protected: Commands) -> None:
    result = run("topics", "delete", "sea", "--yes")
    assert result.exit_code == ExitStatus.USAGE
    assert "context prod is protected" in result.stderr
    assert "sea" in protected.cluster.topics


def test_a_command_that_names_the_protected_context_runs(protected: Commands) -> None:
    assert run("--context", "prod", "topics", "delete", "sea", "--yes").exit_code == ExitStatus.DONE
    assert "sea" not in protected.cluster.topics


@pytest.mark.parametrize(("typed", "is_deleted"), [("prod\n", True), ("yes\n", False)])
def test_on_a_terminal_the_name_of_the_context_is_typed(
    protected: Commands, typed: str, *, is_deleted: bool
) -> None:
    run("topics", "delete", "sea", "--yes", interactive=True, input_=typed)
    assert ("sea" not in protected.cluster.topics) is is_deleted


def test_an_operation_in_a_protected_context_needs_its_name_in_spite_of_yes(
    protected: Commands,
) -> None:
    result = run("rebalance", "--yes")
    assert result.exit_code == ExitStatus.USAGE
    assert "context prod is protected" in result.stderr
    assert protected.controller.called() == []


@pytest.mark.usefixtures("protected")
def test_reading_and_dry_runs_need_no_name() -> None:
    assert run("topics", "list", "--brief").exit_code == ExitStatus.DONE
    assert run("topics", "delete", "sea", "--dry-run").exit_code == ExitStatus.DONE
