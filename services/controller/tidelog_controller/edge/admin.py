"""The complete AdminService."""

from __future__ import annotations

from tidelog_controller.edge.admin_descriptions import DescriptionCalls
from tidelog_controller.edge.admin_leaders import LeaderCalls
from tidelog_controller.edge.admin_operations import OperationCalls
from tidelog_controller.edge.admin_topics import TopicCalls


class AdminServicer(TopicCalls, OperationCalls, LeaderCalls, DescriptionCalls):
    """Turns requests into events of the controller, and its replies into responses."""
