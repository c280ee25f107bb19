"""AdminService as a whole."""

from __future__ import annotations

from tidelog_controller.edge.admin_descriptions import DescriptionCalls
from tidelog_controller.edge.admin_leaders import LeaderCalls
from tidelog_controller.edge.admin_operations import OperationCalls
from tidelog_controller.edge.admin_topics import TopicCalls


class AdminServicer(TopicCalls, OperationCalls, LeaderCalls, DescriptionCalls):
    """Requests become events of the controller, and its replies answers."""
