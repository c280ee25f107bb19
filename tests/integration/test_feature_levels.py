"""A rolling upgrade to a release with one more feature level, and processes that do not support it.

The next release is this one with other values of `tidelog.feature_levels` and `tidelog.version`. A
launcher sets them before it runs the program, from a file that it reads when it starts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from integration.clusters import running_cluster
from integration.explaining import explained, the, until_present
from integration.shell import done, tidelog
from integration.waiting import until
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Admin
from tidelog.errors import ErrorCode, TidelogError
from tidelog_runtime.local.cluster import LocalCluster, Programs

FIRST, NEXT = ("0.1.0", 1, 1), ("0.2.0", 1, 2)
TOO_FAR = ("0.4.0", 1, 2)
EXIT_CANNOT_START = 1
LAUNCHER = """
import json, runpy, sys
from tidelog import feature_levels, version
program, release = sys.argv[1:3]
del sys.argv[1:3]
version.__version__, oldest, newest = json.load(open(release))
feature_levels.SUPPORTED = feature_levels.LevelRange(oldest, newest)
runpy.run_module(program, run_name="__main__")
"""


class Releases:
    """Chooses the release of the processes that are started next."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "release.json"
        self.use(FIRST)

    def use(self, release: tuple[str, int, int]) -> None:
        self._path.write_text(json.dumps(release))

    def programs(self) -> Programs:
        command = (sys.executable, "-c", LAUNCHER)
        return Programs(
            (*command, "tidelog_controller", str(self._path)),
            (*command, "tidelog_broker", str(self._path)),
        )


async def restarted(cluster: LocalCluster, *, brokers: tuple[int, ...]) -> None:
    """Restarts all controllers and these brokers, one after another."""
    for controller_id in (1, 2):
        await cluster.stop_controller(controller_id)
        cluster.start_controller(controller_id)
    for broker_id in brokers:
        await cluster.stop_broker(broker_id)
        cluster.start_broker(broker_id)
    await cluster.ready()


async def error_of_raise(admin: Admin, level: int) -> TidelogError | None:
    try:
        await admin.raise_feature_level(level)
    except TidelogError as error:
        return error
    return None


async def test_a_level_is_raised_after_an_upgrade_and_shuts_the_former_release_out(
    tmp_path: Path,
) -> None:
    releases = Releases(tmp_path)
    directory = tmp_path / "cluster"
    async with running_cluster(directory, brokers=2, programs=releases.programs()) as cluster:
        releases.use(NEXT)
        await restarted(cluster, brokers=(1,))
        async with Admin(cluster.bootstrap) as admin:
            # Broker 2 still runs the former release.
            error = await error_of_raise(admin, 2)
            assert error is not None
            assert error.code is ErrorCode.UNSUPPORTED_VERSION
            assert "broker 2 (0.1.0)" in error.message
            shown = await done(cluster, "cluster", "describe")
            assert "0.1.0: broker 2; 0.2.0: broker 1, controller 1" in shown
            await cluster.stop_broker(2)
            await until_present(cluster, ("level_raisable", -1))
            await done(cluster, "cluster", "upgrade", "--yes")
            assert (await admin.describe_feature_level()).level == 2
        await assert_shut_out(cluster, releases)
        releases.use(NEXT)
        cluster.start_broker(2)
        await cluster.ready()
        identity = (cluster.broker_data_dir(2) / "broker.json").read_bytes()
        assert json.loads(identity.partition(b"\n")[2])["feature_level"] == 2
        # A release that is too far away is reported at once.
        releases.use(TOO_FAR)
        await restarted(cluster, brokers=(1,))
        await until_present(cluster, ("releases_differ", -1))
        document = (await tidelog(cluster, "cluster", "describe", "--json")).document()
        assert document["feature_level"] == 2


async def assert_shut_out(cluster: LocalCluster, releases: Releases) -> None:
    """Broker 2 and controller 2 come back with the former release."""
    releases.use(FIRST)
    identity = cluster.broker_data_dir(2) / "broker.json"
    before = identity.read_bytes()
    cluster.start_broker(2)
    broker = cluster.broker_process(2)
    await broker.wait()
    assert broker.exit_status == EXIT_CANNOT_START
    assert "is at feature level 2, and this process of release 0.1.0" in broker.log_tail()
    assert identity.read_bytes() == before
    await until_present(cluster, ("broker_cannot_start", 2))
    finding = the(await explained(cluster), "broker_cannot_start")
    assert "feature level 2" in finding.summary
    assert "with the release that its last start names" in finding.next_step
    await cluster.stop_controller(2)
    cluster.start_controller(2)
    controller = cluster.controller_process(2)
    await controller.wait()
    assert controller.exit_status == EXIT_CANNOT_START
    assert "is at feature level 2, and this process of release 0.1.0" in controller.log_tail()
    releases.use(NEXT)
    cluster.start_controller(2)


async def test_a_request_for_no_level_of_the_release_is_an_error_of_the_command(
    cluster: LocalCluster,
) -> None:
    async def level() -> int:
        async with Admin(cluster.bootstrap) as admin:
            return (await admin.describe_feature_level()).level

    assert await until(level, "the controller describes the feature level") == 1
    ended = await tidelog(cluster, "cluster", "upgrade", "--to", "2", "--yes")
    assert ended.status == ExitStatus.FAILED
    assert "supports feature level 1 and not 2; upgrade all processes first" in ended.err
