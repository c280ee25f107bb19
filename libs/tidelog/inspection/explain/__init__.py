"""Explains why something does not work, from the states of a cluster's services. Pure functions:
states in, findings out.

`causes` defines the words. Problems of a partition (`partitions`, `elections`) are traced to
problems of a broker, the controller or the store (`replicas`, `controllers`, `store`). Each root
is reported once, with all its effects (`root_causes`, `findings`). Nothing is guessed: if no
service reports the reason, the finding states that.
"""

from tidelog.inspection.explain.findings import explain
from tidelog.inspection.explain.observation import Listening, Observation, SilentService
from tidelog.inspection.explain.reported_metadata import active_controller

__all__ = ["Listening", "Observation", "SilentService", "active_controller", "explain"]
