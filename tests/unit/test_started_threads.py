import threading

from tidelog.memory_shortage import is_memory_shortage
from tidelog_runtime.memory_reserve import started_executor


def test_all_threads_start_before_they_are_needed() -> None:
    before = threading.active_count()
    with started_executor(5, "early") as executor:
        assert threading.active_count() == before + 5
        assert executor.submit(lambda: 7).result(timeout=10) == 7
        assert threading.active_count() == before + 5


def test_a_thread_that_cannot_be_started_is_a_shortage_of_memory() -> None:
    assert is_memory_shortage(RuntimeError("can't start new thread"))
    assert is_memory_shortage(MemoryError())
    assert not is_memory_shortage(RuntimeError("odd"))
    assert not is_memory_shortage(None)
