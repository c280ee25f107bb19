"""A controller whose whole environment is simulated."""

from bench.scale.alone import measure
from bench.scale.lone_controller import LoneController
from tidelog_controller.state.events import CreateTopic


async def test_a_small_cluster_completes_every_stage() -> None:
    figures = await measure(30)

    assert figures.problems == {}
    assert figures.found["failover_leaders"] == 10
    found = figures.found
    assert 0 < found["election_cpu_s"] <= found["plan_cpu_s"] <= found["failover_cpu_s"]


def test_leaders_are_counted_from_the_store() -> None:
    lone = LoneController(3)
    lone.take_over()

    lone.feed(CreateTopic(1, "sea", 6, 3, {}, False, 1_000))

    assert lone.led == {1: 2, 2: 2, 3: 2}
    assert lone.spent.transactions >= 2
    assert lone.spent.commands >= 3
    assert lone.errors == []
