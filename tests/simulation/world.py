"""The world of one seed: brokers, controllers, clients, network, store and observers."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import structlog

from doubles.memory_data import MemoryData
from simulation.data_losses import DataLosses
from simulation.injector import OnFault
from simulation.loop import PROCESS, SimLoop, SimProcess
from simulation.mover import Mover
from simulation.network import Network
from simulation.processes import BrokerProcess, ClientProcess, ControllerProcess, Service
from simulation.store import EtcdServer
from simulation.trace import Tracer
from simulation.twins import twin_host
from simulation.violation import Violation
from tidelog.model import TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.replicas import replica_commands
from tidelog_controller.core import dirty_partitions
from tidelog_runtime.metadata.keys import Keys

T = TypeVar("T")
# Virtual time. A seed takes half of it at most; what has not ended by then waits for something that
# never comes.
MAX_RUN_S = 300
OnLog = Callable[[SimProcess | None, dict[str, Any]], None]


class ClientObserver(Protocol):
    """Observes the requests of clients, and the answers that they accept."""

    def asked(self, host: str, request: object) -> int:
        """Notes a request, and returns a number that its answer will have."""

    def answer_accepted(
        self, host: str, question: int, request: object, answer: object
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Settings:
    """The size of a world. `broker_options`: settings of every broker."""

    brokers: int = 3
    controllers: int = 2
    lease_ttl_seconds: int = 3
    command_timeout_ms: int = 2_000
    broker_options: dict[str, Any] = field(
        default_factory=lambda: {
            "replica_lag_time_max_ms": 2_000,
            "replica_fetch_max_wait_ms": 500,
            "checkpoint_interval_ms": 3_000,
            "flush_interval_ms": 5_000,
            "retention_check_interval_ms": 4_000,
            "stray_retention_ms": 6_000,
            "producer_id_expiration_ms": 5_000,
            "shutdown_timeout_ms": 5_000,
            # Few records are written here.
            "digest_range_offsets": 16,
        }
    )
    keep_trace: bool = False


class WriteTo(Protocol):
    """Writes a number of batches to a partition, through one broker; returns the client's host.

    With `apart_s`, the batches are so far apart, and the client sends them again and learns of
    other leaders.
    """

    def __call__(
        self, partition: TopicPartition, broker_id: int, batches: int, *, apart_s: float = 0.0
    ) -> str: ...


def _write_nothing(
    partition: TopicPartition,  # noqa: ARG001
    broker_id: int,  # noqa: ARG001
    batches: int,  # noqa: ARG001
    *,
    apart_s: float = 0.0,  # noqa: ARG001
) -> str:
    return ""


# The share of seeds that limit the bytes by which an ISR member may lag, and the limit. It is lower
# than users may set, since batches here have a hundred bytes.
LAG_BYTES_SHARE = 0.4
LAG_MAX_BYTES = (60, 250)


def draw_lag_max_bytes(rng: random.Random) -> int | None:
    return rng.randint(*LAG_MAX_BYTES) if rng.random() < LAG_BYTES_SHARE else None


class World:
    """Is made, run and closed once. Two cannot run at the same time: logging is global."""

    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.seed = seed
        self.settings = settings or Settings()
        self.tracer = Tracer(keep_all=self.settings.keep_trace)
        self.loop = SimLoop()  # type: ignore[abstract]  # unused methods are left out
        self.network = Network(self.loop, self.rng)
        self.store_data = MemoryData()
        self.etcd = EtcdServer(self.loop, self.network, self.store_data)
        self.keys = Keys("sim")
        self.lag_max_bytes = draw_lag_max_bytes(self.rng("settings"))
        self.brokers = {n: BrokerProcess(self, n) for n in range(1, self.settings.brokers + 1)}
        self.controllers = {
            n: ControllerProcess(self, n) for n in range(1, self.settings.controllers + 1)
        }
        # Second processes of a broker's id, held down unless a fault starts one.
        self.twins: dict[int, BrokerProcess] = {}
        self.clients: dict[str, ClientProcess] = {}
        self.bootstrap = [broker.address for broker in self.brokers.values()]
        self.data_losses = DataLosses()
        self.mover = Mover(self)
        self.after_step = self.loop.after_step
        self.fault_callbacks: list[OnFault] = []
        self.client_observer: ClientObserver | None = None
        # Called with a topic that exists now, and with one that is about to be deleted for good.
        self.on_topic_created: list[Callable[[str], None]] = []
        self.on_topic_given_up: list[Callable[[str], None]] = []
        self.write_to: WriteTo = _write_nothing
        # Reads a partition from its start, once.
        self.read_from_start: Callable[[TopicPartition], None] = lambda _: None
        # How often a directed fault of each kind reached the step that it is for.
        self.directed_reached: Counter[str] = Counter()
        self._on_log: list[OnLog] = []

    # -- for observers -----------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self.loop.now_us // 1000

    @property
    def true_ms(self) -> int:
        """The true time since 1970, which no fault changes."""
        return self.loop.wall_ms()

    @property
    def stepped(self) -> SimProcess | None:
        return self.loop.stepped

    @property
    def store_caller(self) -> SimProcess | None:
        """The process whose transaction the store carries out at this moment."""
        return self.etcd.caller

    def rng(self, name: str) -> random.Random:
        """Returns a generator for each purpose, so that no draw disturbs another purpose."""
        return random.Random(f"{self.seed}/{name}")

    def trace(self, event: str, **fields: object) -> None:
        process = PROCESS.get()
        self.tracer.add(self.now_ms, process.name if process else "-", event, fields)

    def fail(self, error: BaseException) -> None:
        self.loop.fail(error)

    def on_log(self, callback: OnLog) -> None:
        self._on_log.append(callback)

    def on_fault(self, callback: OnFault) -> None:
        self.fault_callbacks.append(callback)

    def on_answer(self, callback: Callable[[str, str, str, object], None]) -> None:
        self.network.on_answer.append(callback)

    def partitions_of(self, broker: BrokerProcess) -> Iterable[Partition]:
        return broker.broker.manager.all() if broker.broker is not None else ()

    def client(self, name: str) -> ClientProcess:
        client = self.clients.get(name)
        if client is None:
            client = self.clients[name] = ClientProcess(self, name)
        return client

    def twin(self, broker_id: int) -> BrokerProcess:
        twin = self.twins.get(broker_id)
        if twin is None:
            twin = self.twins[broker_id] = BrokerProcess(self, broker_id, twin_host(broker_id))
            twin.hold_down()
        return twin

    def broker_at(self, address: str) -> BrokerProcess | None:
        """Returns the broker's process that listens at the address while it runs."""
        both = (*self.brokers.values(), *self.twins.values())
        return next((broker for broker in both if broker.address == address), None)

    def services(self) -> list[Service]:
        return [*self.brokers.values(), *self.controllers.values()]

    def service(self, host: str) -> Service:
        return next(service for service in self.services() if service.host == host)

    # -- start and end -----------------------------------------------------------------

    def start_all(self) -> None:
        for service in self.services():
            service.start()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Starts every service, and runs `main` to its end in virtual time.

        Raises a `Violation` named `run_never_ends` if that takes longer than MAX_RUN_S.
        """
        former, former_turn = structlog.get_config(), replica_commands.COST_PER_TURN
        former_judged = dirty_partitions.MAX_DECIDED_PER_BATCH
        # Topics are small here, and nothing that may happen between two partitions is to be missed.
        replica_commands.COST_PER_TURN = 1
        dirty_partitions.MAX_DECIDED_PER_BATCH = 2
        structlog.configure(
            processors=[], wrapper_class=_logger_class(self._said), cache_logger_on_first_use=False
        )
        library = logging.getLogger("tidelog")
        handler = _LibraryHandler(self._said)
        library.addHandler(handler)
        self.loop.call_later(MAX_RUN_S, self._give_up, context=self.loop.world_context)
        try:
            return self.loop.run(self._main(main))
        finally:
            # Two runs that differ anywhere differ here.
            self.trace("end", steps=self.loop.steps, now_us=self.loop.now_us)
            library.removeHandler(handler)
            structlog.configure(**former)
            replica_commands.COST_PER_TURN = former_turn
            dirty_partitions.MAX_DECIDED_PER_BATCH = former_judged

    def _give_up(self) -> None:
        self.fail(Violation("run_never_ends", f"it goes on after {MAX_RUN_S} virtual s"))

    async def _main(self, main: Coroutine[Any, Any, T]) -> T:
        self.start_all()
        return await main

    def _said(self, level: str, event: str, fields: dict[str, Any]) -> None:
        process = PROCESS.get()
        if level != "debug":
            self.tracer.add(self.now_ms, process.name if process else "-", event, fields)
        for callback in self._on_log:
            callback(process, {"event": event, "level": level, **fields})

    def close(self) -> None:
        """Disposes of everything; what is pending logs nothing at its end."""
        former = structlog.get_config()
        structlog.configure(processors=[], wrapper_class=_logger_class(lambda *_: None))
        try:
            self.loop.close()
        finally:
            structlog.configure(**former)


class _LibraryHandler(logging.Handler):
    """Sends the client library's log lines where those of the services go."""

    def __init__(self, said: Callable[[str, str, dict[str, Any]], None]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said(record.levelname.lower(), "client_says", {"message": record.getMessage()})


def _logger_class(said: Callable[[str, str, dict[str, Any]], None]) -> type[Any]:
    """Returns a logger with the part of structlog's interface that production code uses."""

    class Logger:
        def __init__(self, logger: object, processors: object, context: object) -> None:
            pass

        def debug(self, event: str, **fields: Any) -> None:
            said("debug", event, fields)

        def info(self, event: str, **fields: Any) -> None:
            said("info", event, fields)

        def warning(self, event: str, **fields: Any) -> None:
            said("warning", event, fields)

        def error(self, event: str, **fields: Any) -> None:
            said("error", event, fields)

        def critical(self, event: str, **fields: Any) -> None:
            said("critical", event, fields)

        def exception(self, event: str, **fields: Any) -> None:
            said("error", event, {**fields, "exc_info": True})

        def bind(self, **_: Any) -> Logger:
            return self

    return Logger
