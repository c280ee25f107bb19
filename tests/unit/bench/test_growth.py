"""How cost grows with cluster size, and the bounds on it."""

import pytest

from bench.report import Measured
from bench.scale.by_size import arranged
from bench.scale.exposition import StoreWork, store_work, sums
from bench.scale.quantities import Quantity, SizeFigures, exponent, outcome
from bench.suite.outcome import Point

METRICS = """\
# HELP etcd_mvcc_put_total puts
# TYPE etcd_mvcc_put_total counter
etcd_mvcc_put_total 120
etcd_debugging_mvcc_events_total 360
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 9
etcd_disk_wal_fsync_duration_seconds_count 10
etcd_network_client_grpc_sent_bytes_total 2e+06
etcd_network_client_grpc_received_bytes_total 1000
grpc_server_handled_total{grpc_code="OK",grpc_method="Txn",grpc_service="etcdserverpb.KV"} 4
grpc_server_handled_total{grpc_code="OK",grpc_method="Range",grpc_service="etcdserverpb.KV"} 7
"""
COST = Quantity("cost_s", "cost", "s", 2.0)
FREE = Quantity("free_s", "free", "s")


@pytest.mark.parametrize(("power", "costs"), [(1, (1, 10)), (2, (1, 100)), (0, (3, 3))])
def test_a_power_of_the_size_is_found(power: float, costs: tuple[float, float]) -> None:
    points = [Point(10, costs[0]), Point(100, costs[1])]

    assert exponent(points) == pytest.approx(power)


def test_one_size_shows_no_growth() -> None:
    assert exponent([Point(10, 1), Point(10, 2)]) is None
    assert exponent([Point(10, 0), Point(100, 2)]) is None


def test_series_of_one_name_are_added() -> None:
    assert sums('a{b="1"} 2\na{b="2"} 3\n# a 9\nc 1.5\n') == {"a": 5.0, "c": 1.5}


def test_store_requests_are_counted_per_change() -> None:
    work = store_work(METRICS)

    assert work == StoreWork(4, 120, 360, 10, 2e6, 1000)
    assert work.since(work._replace(puts=20)).puts == 100
    assert work.for_each(120)["watch_events"] == 3


def test_a_bound_holds_at_its_size_alone() -> None:
    sizes = [SizeFigures(size, {"cost_s": size / 1000, "free_s": 9.0}) for size in (1_000, 10_000)]

    results = {r.name: r.met for r in outcome("x", "x", [COST, FREE], 10_000, sizes).results}

    assert results == {
        "1,000 partitions: cost": None,
        "1,000 partitions: free": None,
        "10,000 partitions: cost": False,
        "10,000 partitions: free": None,
    }


def test_a_failed_measurement_misses_its_target() -> None:
    figures = SizeFigures(10_000, problems={"takeover": "no event"})

    results = outcome("x", "x", [COST], 10_000, [figures]).results

    assert [result.met for result in results] == [False, False]
    assert "no event" in results[-1].name


def test_each_quantity_has_a_line_over_the_sizes_with_its_power() -> None:
    sizes = [SizeFigures(size, {"cost_s": size / 1000}) for size in (1_000, 10_000)]

    found = outcome("x", "x", [COST, FREE], 10_000, sizes)
    (chart,) = found.charts

    assert [line.label for line in chart.lines] == ["cost (n^1.00)"]
    assert chart.lines[0].points == [Point(1_000, 1.0), Point(10_000, 10.0)]
    assert found.details["growth_exponents"] == {"cost_s": 1.0}


def test_sizes_are_columns() -> None:
    sizes = [SizeFigures(size, {"cost_s": size / 1000}) for size in (1_000, 10_000)]
    other = Measured("growth", 1.0, "")

    by_size, others = arranged([*outcome("x", "x", [COST], 10_000, sizes).results, other])

    assert by_size.sizes == [1_000, 10_000]
    (row,) = by_size.rows
    assert (row.text, row.unit, row.target) == ("cost", "s", "<= 2 at 10,000")
    assert [row.by_size[size].value for size in by_size.sizes] == [1.0, 10.0]
    assert others == [other]
