"""A producer over REST, which writes one record after another with acks=all.

REST has no sequence numbers, so a record whose outcome is unknown is never sent again."""

from __future__ import annotations

import asyncio

import httpx

from faults.load import now_ms
from faults.values import payload, values_of_client
from tidelog.history import NO_PARTITION, HistoryWriter, Outcome, SendEnded, SendInvoked

PAUSE_S = 0.5
# Until a gateway that restarts listens again.
RETRY_PAUSE_S = 0.1
REQUEST_TIMEOUT_S = 60.0
CLIENT = "rest"


class RestLoad:
    """`number`: distinguishes its values from those of other clients."""

    def __init__(self, address: str, topic: str, history: HistoryWriter, number: int) -> None:
        self._address = address
        self._topic = topic
        self._history = history
        self._values = values_of_client(number)
        # Answers other than success, and broken connections.
        self.errors: list[str] = []

    async def run(self, until: asyncio.Event) -> None:
        async with httpx.AsyncClient(
            base_url=f"http://{self._address}",
            timeout=REQUEST_TIMEOUT_S,
            trust_env=False,
            # A request on a connection that a stopping gateway is closing has an unknown outcome.
            limits=httpx.Limits(max_keepalive_connections=0),
        ) as http:
            while not until.is_set():
                value = next(self._values)
                self._history.write(SendInvoked(now_ms(), CLIENT, self._topic, NO_PARTITION, value))
                self._end(value, *await self._send(http, value))
                await asyncio.sleep(PAUSE_S)

    async def _send(self, http: httpx.AsyncClient, value: int) -> tuple[Outcome, int, int]:
        """Returns the outcome, the partition and the offset."""
        record = {"value": payload(value).decode(), "value_encoding": "text"}
        while True:
            try:
                answer = await http.post(
                    f"/v1/topics/{self._topic}/records", json={"records": [record]}
                )
            except httpx.ConnectError:
                # Nothing was sent.
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            except httpx.HTTPError as error:
                self.errors.append(f"record {value}: {error!r}")
                return Outcome.INFO, NO_PARTITION, -1
            break
        if answer.status_code != httpx.codes.OK:
            self.errors.append(f"record {value}: {answer.status_code} {answer.text[:300]}")
            # Also with an error that excludes that the record was written: no record may fail.
            return Outcome.INFO, NO_PARTITION, -1
        [result] = answer.json()["results"]
        return Outcome.OK, int(result["partition"]), int(result["offset"])

    def _end(self, value: int, outcome: Outcome, partition: int, offset: int) -> None:
        self._history.write(
            SendEnded(now_ms(), CLIENT, self._topic, partition, value, outcome, offset)
        )
