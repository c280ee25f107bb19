"""Bytes copied by operations, as reported to administrators."""

from __future__ import annotations

from tidelog_controller.requests.describe_operation import MAX_MEASURING_MS
from tidelog_controller.state.admin_answers import OperationMovesAnswer
from tidelog_controller.state.admin_requests import DescribeOperation, ListOperations
from tidelog_runtime.metadata.operations import decode_operation
from unit.controller.driver import KEYS, WALL_MS, Driver
from unit.controller.operated import by_hand, catch_up, described, with_topic


def moving(*sizes: int) -> Driver:
    """Each of these partitions is to be copied once, to broker 4. The numbers are the bytes of
    their leaders.
    """
    driver = with_topic(len(sizes))
    targets = [(n, (4, driver.state(n).replicas[0])) for n in range(len(sizes))]
    for number, size in enumerate(sizes):
        set_sizes(driver, number, size)
    driver.begin_operation(by_hand(*targets), "op")
    return driver


def set_sizes(driver: Driver, number: int, size: int, lacks: int | None = None) -> None:
    """The sizes that a partition's leader reports from now on."""
    leader = driver.brokers[driver.state(number).leader]
    leader.sizes[number] = size
    if lacks is not None:
        leader.lacks[number] = {4: lacks}


def test_bytes_are_those_that_the_leaders_of_moved_partitions_report() -> None:
    driver = moving(1_000, 600)
    set_sizes(driver, 0, 1_100, lacks=300)
    answer = described(driver)
    progress = answer.operation.progress
    assert (progress.bytes_to_copy, progress.bytes_copied) == (1_700, 800)
    assert progress.moves_unmeasured == 0
    assert [(m.bytes_to_copy, m.bytes_copied) for m in answer.moves] == [(1_100, 800), (600, 0)]


def test_no_broker_is_queried_before_the_operation_is_described() -> None:
    driver = moving(1_000)
    driver.pass_time(60_000)
    driver.ask(ListOperations(0, (), (), 0, ""))
    assert driver.questions == []


def test_a_list_contains_the_known_bytes_and_the_number_of_unmeasured_moves() -> None:
    driver = moving(1_000)
    answer = driver.ask(ListOperations(0, (), (), 0, "")).answer
    assert answer.operations[0].progress.moves_unmeasured == 1  # type: ignore[union-attr]
    described(driver)
    answer = driver.ask(ListOperations(0, (), (), 0, "")).answer
    progress = answer.operations[0].progress  # type: ignore[union-attr]
    assert (progress.bytes_to_copy, progress.moves_unmeasured) == (1_000, 0)


def test_a_recent_measurement_is_not_requested_again() -> None:
    driver = moving(1_000)
    described(driver)
    asked = len(driver.questions)
    described(driver)
    assert len(driver.questions) == asked
    driver.pass_time(1_000)
    described(driver)
    assert len(driver.questions) == asked + 1


def test_rate_and_estimated_end_follow_from_recently_copied_bytes() -> None:
    driver = moving(1_000, 600)
    set_sizes(driver, 0, 1_000, lacks=900)
    assert described(driver).operation.progress.bytes_per_second == 0
    driver.pass_time(10_000)
    set_sizes(driver, 0, 1_000, lacks=400)
    progress = described(driver).operation.progress
    assert progress.bytes_per_second == 50
    assert progress.estimated_end_ms == WALL_MS + driver.now_ms + 1_000 * 1_000 // 50


def test_finished_moves_count_as_last_measured() -> None:
    driver = moving(1_000)
    set_sizes(driver, 0, 1_000, lacks=10)
    described(driver)
    catch_up(driver)
    set_sizes(driver, 0, 9_999)
    progress = described(driver).operation.progress
    assert (progress.bytes_to_copy, progress.bytes_copied) == (1_000, 1_000)


def test_the_bytes_copied_are_kept_with_an_ended_operation() -> None:
    driver = moving(1_000, 600)
    described(driver)
    catch_up(driver)
    entry = decode_operation(driver.store.items[KEYS.operation("op")].value)
    assert (entry.bytes_copied, entry.moves_unmeasured) == (1_600, 0)
    driver.take_over()
    assert described(driver).operation.progress.bytes_copied == 1_600


def test_unmeasured_moves_are_counted_as_such_at_the_end() -> None:
    driver = moving(1_000)
    catch_up(driver)
    progress = described(driver).operation.progress
    assert (progress.bytes_copied, progress.moves_unmeasured) == (0, 1)


def test_another_controller_requests_measurements_of_finished_moves_too() -> None:
    driver = moving(1_000, 600)
    driver.leader_writes_isr(0, *driver.state(0).replicas)
    driver.watch()
    set_sizes(driver, 0, 1_000)
    driver.take_over()
    progress = described(driver).operation.progress
    assert (progress.bytes_to_copy, progress.bytes_copied) == (1_600, 1_000)


def test_a_description_waits_for_a_silent_leader_for_a_limited_time() -> None:
    driver = moving(1_000, 600)
    silent = driver.state(0).leader
    driver.brokers[silent].silent = True
    driver.feed(DescribeOperation(99, "op", 0, ""))
    assert 99 not in driver.replies
    driver.pass_time(MAX_MEASURING_MS)
    answer = driver.replies[99].answer
    assert isinstance(answer, OperationMovesAnswer)
    others = [n for n in range(2) if driver.state(n).leader != silent]
    assert answer.operation.progress.moves_unmeasured == 2 - len(others)


def test_a_lost_measurement_is_requested_with_the_next_description() -> None:
    driver = moving(1_000)
    driver.brokers[driver.state(0).leader].lost_questions = 1
    assert described(driver).operation.progress.moves_unmeasured == 1
    assert described(driver).operation.progress.moves_unmeasured == 0


def test_moves_that_copy_nothing_have_no_bytes() -> None:
    driver = with_topic(1)
    first, second = driver.state(0).replicas
    driver.begin_operation(by_hand((0, (second, first))), "op")
    progress = described(driver).operation.progress
    assert (progress.bytes_to_copy, progress.moves_unmeasured) == (0, 0)
    assert driver.questions == []


def test_measurements_are_kept_while_the_operation_is_cancelled() -> None:
    driver = moving(1_000, 600)
    driver.leader_writes_isr(0, *driver.state(0).replicas)
    driver.watch()
    described(driver)
    driver.cancel_operation("op")
    entry = decode_operation(driver.store.items[KEYS.operation("op")].value)
    assert (entry.bytes_copied, entry.moves_unmeasured) == (1_000, 0)
