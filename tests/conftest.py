"""For all suites. With CI=true a test that is skipped has failed: what is not run there
is not known to work."""

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings
from pluggy import Result

from tidelog_runtime.local import ports

IN_CI = os.environ.get("CI") == "true"

# How long one example takes is the machine's affair; what hangs has pytest's timeout.
settings.register_profile("tidelog", settings(), deadline=None)
settings.load_profile("tidelog")

# A shell lets what it starts in the background ignore SIGINT, and so would all that tests start,
# some of which is to end by it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A port that is free when it is chosen is bound only a moment later: no two processes of
# pytest-xdist may choose among the same ones.
if WORKER := os.environ.get("PYTEST_XDIST_WORKER", ""):
    WORKERS = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    ports.OTHER_PORTS = ports.OTHER_PORTS[int(WORKER.removeprefix("gw")) :: WORKERS]


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure (xfail) is reported as skipped too, and is none.
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"a skip counts as a failure with CI=true: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Result[pytest.TestReport], None]:
    outcome = yield
    if IN_CI:
        _fail_if_skipped(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Result[pytest.CollectReport], None]:
    outcome = yield
    if IN_CI:
        _fail_if_skipped(outcome.get_result())
