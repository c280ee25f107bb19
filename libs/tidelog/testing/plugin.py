"""Fixtures of pytest, which finds this plugin once `tidelog[testing]` is installed.

    def test_a_program_survives_a_dead_broker(tidelog_cluster, tidelog_topic):
        with SyncProducer(tidelog_cluster.bootstrap) as producer:
            producer.send(tidelog_topic, b"calm")

- `tidelog_cluster`: a cluster that all tests of a session with the same number of brokers share. It
  starts with the first of them. Brokers that a test has killed or paused run again after it.
- `tidelog_topic`: the name of a new topic, for each test; deleted afterwards.
- `tidelog_memory_broker`: a broker in the test's own process, new and empty for each test.
- `@pytest.mark.tidelog(brokers=3, partitions=6, config={...})` chooses the cluster and the topic;
  `--tidelog-brokers` is the number of brokers of tests without a mark (default: 1).

Each process of pytest-xdist has clusters of its own, on ports of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidelog.testing.cluster_for_tests import TestCluster
    from tidelog.testing.memory_broker import MemoryBroker

MARK = "tidelog"
MAX_REPLICATION_FACTOR = 3


@dataclass(frozen=True)
class _Requirements:
    """The arguments of the mark."""

    brokers: int
    partitions: int = 1
    config: dict[str, str] = field(default_factory=dict)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tidelog").addoption(
        "--tidelog-brokers",
        type=int,
        default=1,
        metavar="N",
        help="brokers of the cluster for tests without @pytest.mark.tidelog(brokers=N)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}(brokers, partitions, config): the cluster and the topic of a test "
        "(tidelog.testing.plugin)",
    )


def _requirements(request: pytest.FixtureRequest) -> _Requirements:
    from tidelog.testing.cluster_for_tests import MAX_BROKERS

    mark = request.node.get_closest_marker(MARK)
    given = {"brokers": request.config.getoption("--tidelog-brokers")}
    if mark is not None:
        given |= mark.kwargs
    try:
        required = (
            _Requirements(*mark.args, **given) if mark is not None else _Requirements(**given)
        )
    except TypeError:
        raise pytest.UsageError(
            f"@pytest.mark.{MARK} takes brokers=N, partitions=N and config={{...}}"
        ) from None
    if not 1 <= required.brokers <= MAX_BROKERS:
        raise pytest.UsageError(f"{required.brokers} brokers; a cluster has 1 to {MAX_BROKERS}")
    return required


@pytest.fixture(scope="session")
def _tidelog_clusters() -> Iterator[dict[int, TestCluster]]:
    """The running clusters, by number of brokers."""
    clusters: dict[int, TestCluster] = {}
    yield clusters
    for cluster in clusters.values():
        cluster.stop()


@pytest.fixture
def tidelog_cluster(
    request: pytest.FixtureRequest,
    _tidelog_clusters: dict[int, TestCluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TestCluster]:
    """A running cluster with as many brokers as the test's mark says."""
    from tidelog.testing.cluster_for_tests import TestCluster, share_ports

    brokers = _requirements(request).brokers
    cluster = _tidelog_clusters.get(brokers)
    if cluster is None:
        share_ports()
        cluster = TestCluster(tmp_path_factory.mktemp(f"tidelog-{brokers}-"), brokers)
        cluster.start()
        _tidelog_clusters[brokers] = cluster
    yield cluster
    cluster.heal()


@pytest.fixture
def tidelog_topic(request: pytest.FixtureRequest, tidelog_cluster: TestCluster) -> Iterator[str]:
    """The name of a new topic, which no other test uses."""
    from tidelog.client import SyncAdmin

    required = _requirements(request)
    name = f"test-{uuid.uuid4().hex}"
    factor = min(required.brokers, MAX_REPLICATION_FACTOR)
    with SyncAdmin(tidelog_cluster.bootstrap) as admin:
        admin.create_topic(name, required.partitions, factor, required.config)
    yield name
    tidelog_cluster.heal()
    with SyncAdmin(tidelog_cluster.bootstrap) as admin:
        admin.delete_topic(name)


@pytest.fixture
def tidelog_memory_broker() -> Iterator[MemoryBroker]:
    """A running broker in memory, without topics, which no other test uses."""
    from tidelog.testing.memory_broker import MemoryBroker

    with MemoryBroker() as broker:
        yield broker
