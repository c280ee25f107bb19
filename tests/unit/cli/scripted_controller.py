"""A controller with scripted answers that records its requests."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from tidelog.client.controller_calls import REQUESTED_BY
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from unit.client.fake_broker import FakeCluster, ServicerContext
from unit.client.fake_controller import FakeController

# The in-memory cluster carries these out itself, unless an answer is scripted for them.
_OWN = ("CreateTopic", "DeleteTopic", "DescribeTopics", "RecoverPartitions")
_RPCS = tuple(method.name for method in pb.DESCRIPTOR.services_by_name["AdminService"].methods)


class ScriptedController(FakeController):
    """`answers` by RPC; the last one is repeated."""

    def __init__(self, cluster: FakeCluster, controller_id: int) -> None:
        super().__init__(cluster, controller_id)
        self.answers: dict[str, deque[Any]] = defaultdict(deque)
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self.requested_by: list[str] = []

    def answer(self, rpc: str, *responses: Any) -> None:
        assert rpc in _RPCS
        self.answers[rpc].extend(responses)

    def reject(self, rpc: str, code: ErrorCode, message: str = "why") -> None:
        response = getattr(pb, f"{rpc}Response")()
        response.error.CopyFrom(error_to_wire(TidelogError(code, message)))
        self.answer(rpc, response)

    def called(self) -> list[str]:
        return [rpc for rpc in _RPCS for _ in self.requests[rpc]]

    async def handle(self, rpc: str, request: Any, context: ServicerContext) -> Any:
        self.requests[rpc].append(request)
        caller = dict(context.invocation_metadata() or ()).get(REQUESTED_BY, "")
        self.requested_by.append(str(caller))
        answers = self.answers[rpc]
        if not answers and rpc in _OWN:
            return await getattr(super(), rpc)(request, context)
        assert answers, f"{rpc} was called, and has no scripted answer"
        return answers.popleft() if len(answers) > 1 else answers[0]


def _handler(rpc: str) -> Any:
    async def handle(self: ScriptedController, request: Any, context: ServicerContext) -> Any:
        return await self.handle(rpc, request, context)

    return handle


for _rpc in _RPCS:
    setattr(ScriptedController, _rpc, _handler(_rpc))
