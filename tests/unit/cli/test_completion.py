"""Shell completion of names, with their descriptions."""

from __future__ import annotations

import pytest
import typer
import typer.main

from tidelog.cli.__main__ import app
from tidelog.cli.completion import (
    complete_broker,
    complete_operation,
    complete_running_operation,
    complete_topic,
)
from tidelog.v1 import admin_pb2 as pb
from unit.cli.conftest import Commands

RUNNING = pb.Operation(
    operation_id="grow", kind=pb.OPERATION_KIND_BROKERS_ADD, state=pb.OPERATION_STATE_RUNNING
)


def context_of(commands: Commands) -> typer.Context:
    context = typer.Context(typer.main.get_command(app))
    context.params["bootstrap"] = ",".join(commands.cluster.bootstrap())
    return context


def test_topics_are_completed(commands: Commands) -> None:
    commands.cluster.create("bay", [0])
    assert list(complete_topic(context_of(commands), "s")) == ["sea"]


def test_brokers_are_completed_with_their_status(commands: Commands) -> None:
    brokers = [
        pb.BrokerDetails(broker_id=n, status=pb.BROKER_STATUS_RUNNING, address="a:1")
        for n in (1, 2, 12)
    ]
    commands.controller.answer("DescribeBrokers", pb.DescribeBrokersResponse(brokers=brokers))
    completed = list(complete_broker(context_of(commands), "1"))
    assert completed == [("1", "running a:1"), ("12", "running a:1")]


def test_operations_are_completed_with_their_description(commands: Commands) -> None:
    commands.controller.answer("ListOperations", pb.ListOperationsResponse(operations=[RUNNING]))
    completed = list(complete_operation(context_of(commands), ""))
    assert completed == [("grow", "brokers_add running")]


def test_only_running_operations_are_completed_for_cancel(commands: Commands) -> None:
    commands.controller.answer("ListOperations", pb.ListOperationsResponse(operations=[RUNNING]))
    list(complete_running_operation(context_of(commands), ""))
    (requested,) = commands.controller.requests["ListOperations"]
    assert list(requested.states) == [pb.OPERATION_STATE_RUNNING, pb.OPERATION_STATE_CANCELLING]


def test_without_an_answer_there_are_no_completions(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    context = context_of(commands)
    commands.in_loop(commands.cluster.close())
    assert list(complete_broker(context, "")) == []
    assert capsys.readouterr() == ("", "")
