import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from structlog.testing import capture_logs

from tidelog_broker.background import Faults, own_threads
from tidelog_runtime.metadata.store import StoreRolledBackError


async def ended(error: Exception | None) -> Faults:
    """A background task that ended by itself, with or without an error."""

    async def work() -> None:
        if error is not None:
            raise error

    faults = Faults()
    task = asyncio.create_task(work())
    task.add_done_callback(faults.on_end)
    await asyncio.wait({task})
    await asyncio.sleep(0)
    return faults


async def test_a_task_that_dies_is_a_fault_and_is_logged() -> None:
    with capture_logs() as logs:
        faults = await ended(ValueError("odd"))
    assert faults.found.is_set()
    assert [line["event"] for line in logs] == ["task_failed"]


async def test_a_task_that_is_cancelled_is_no_fault() -> None:
    faults = Faults()
    task = asyncio.create_task(asyncio.Event().wait())
    task.add_done_callback(lambda done: faults.on_end(done))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert not faults.found.is_set()


async def test_a_store_that_was_rolled_back_does_not_end_the_data_plane() -> None:
    assert not (await ended(StoreRolledBackError("wiped"))).found.is_set()


async def test_the_first_fault_is_the_reason_and_a_memory_shortage_has_a_hint() -> None:
    with capture_logs() as logs:
        faults = await ended(MemoryError())
    assert "MemoryError: the process may not use more memory; raise its limit" in faults.reason
    assert logs[0]["exc_info"] is None  # a traceback does not show where memory went
    first = faults.reason
    task = asyncio.create_task(raises(ValueError("odd")))
    task.add_done_callback(faults.on_end)
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert faults.reason == first


async def test_a_memory_shortage_in_a_task_group_is_a_memory_shortage() -> None:
    with capture_logs() as logs:
        faults = await ended(ExceptionGroup("tasks", [MemoryError("length -1")]))
    assert "MemoryError: the process may not use more memory; raise its limit" in faults.reason
    assert logs[0]["exc_info"] is None
    assert logs[0]["raised"] == "length -1"


async def test_another_error_beside_a_memory_shortage_keeps_its_traceback() -> None:
    group = ExceptionGroup("tasks", [ValueError("odd"), MemoryError()])
    with capture_logs() as logs:
        faults = await ended(group)
    assert "MemoryError: the process may not use more memory" in faults.reason
    assert logs[0]["exc_info"] is group


async def raises(error: Exception) -> None:
    raise error


_HANGS_AFTER_A_FAULT = """
import asyncio, time
from tidelog_broker.background import Faults

async def fails():
    raise MemoryError

async def main():
    faults = Faults()
    faults.prepare_end(within_s=0.2)
    task = asyncio.create_task(fails())
    task.add_done_callback(faults.on_end)
    await faults.found.wait()
    time.sleep(60)

asyncio.run(main())
"""


def test_a_process_that_hangs_after_a_fault_is_ended_by_the_kernel() -> None:
    """For example, a thread that is started without memory lets its parent wait forever."""
    hanging = subprocess.run(
        [sys.executable, "-c", _HANGS_AFTER_A_FAULT], capture_output=True, timeout=30, check=False
    )
    assert hanging.returncode == -signal.SIGALRM


async def run_beside_other_work() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    others_end = threading.Event()
    other = asyncio.create_task(asyncio.to_thread(others_end.wait))
    await asyncio.sleep(0)
    try:
        done: list[int] = []
        await own_threads(1, "sync")(lambda: done.append(1))
        assert done == [1]
        assert not other.done()
    finally:
        others_end.set()
        await other


def test_work_in_threads_of_its_own_does_not_wait_for_other_work() -> None:
    """The loop is a real one: threads have no virtual time."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(run_beside_other_work())
