"""Why something does not work, from what the services of a cluster tell (section 7 of the
design). Pure: answers in, findings out.

`causes` lists the words. What is wrong with a partition (`partitions`, `elections`) is led
back to what is wrong with a broker, the controller or the store (`replicas`, `control`,
`store`), and each root is told once, with all that follows from it (`roots`, `findings`).
Nothing is guessed: where nobody tells why, a finding says so.
"""

from tidelog.inspection.explain.active_controller import active_controller
from tidelog.inspection.explain.findings import explain
from tidelog.inspection.explain.observed import Listening, Observed, SilentService

__all__ = ["Listening", "Observed", "SilentService", "active_controller", "explain"]
