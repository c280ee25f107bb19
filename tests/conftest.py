"""Configuration of all suites. With CI=true a skipped test has failed: what does not run there is
not known to work."""

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings
from pluggy import Result

from tidelog.testing.cluster_for_tests import share_ports

IN_CI = os.environ.get("CI") == "true"

# The duration of one example depends on the machine; pytest's timeout ends a hanging one.
settings.register_profile("tidelog", settings(), deadline=None)
settings.load_profile("tidelog")

# A shell makes its background processes ignore SIGINT, and all processes of tests would inherit
# that; some of them have to end by SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

share_ports()


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure (xfail) is reported as skipped, but is not.
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
