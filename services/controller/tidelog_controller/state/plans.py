"""The effects of an operation once it has begun."""

from __future__ import annotations

from typing import NamedTuple

from tidelog_controller.state.admin_answers import PlanSummary
from tidelog_controller.state.mutations import BrokerMarking, TopicRewrite


class OperationPlan(NamedTuple):
    """A complete plan.

    - `marks`, `topics`: like those of `OperationCommit`.
    - `marks_before`, `factors_before`: like those of `OperationEntry`.
    """

    summary: PlanSummary
    marks: tuple[BrokerMarking, ...] = ()
    topics: tuple[TopicRewrite, ...] = ()
    marks_before: tuple[tuple[int, str], ...] = ()
    factors_before: tuple[tuple[str, str, int], ...] = ()
