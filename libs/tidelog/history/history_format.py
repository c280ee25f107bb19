"""A history as lines of JSON, one object a line, in the order of events.

The first line is `{"k":"tidelog-history","version":1}`. Every other line is an operation.
A field that is unknown, or has its default, is left out. Times are milliseconds of one
monotonic clock. Verdicts depend on the order of lines; times are only shown.

Every operation:
    k    kind: send, poll, hw, mark, digest, nemesis
    t    time in milliseconds
All but nemesis:
    tp   topic. A topic that is deleted and created again is another topic, and needs
         another name here (its id, for example)
    p    partition; may be missing in a send that is not ok
send, poll, hw:
    c    client: the producer or consumer, or the client that reads the high watermark
    r    how it ended: ok, fail (certainly not done), info (unknown).
         Missing: this line is the invocation
send:
    v    value: a whole number from 0, unique in the history. (Producers need no coordination
         if each counts up from its own number << 32.)
    o    offset, e leader epoch, b broker that acknowledged: with r = ok
poll, one line for each partition:
    os   offsets, in the order in which the client received them; vs values (-1: a record
         without a value); es leader epochs. An offset that no client receives (a fence lies
         there) is left out
    new  1: the position was assigned, sought or reset since this client's last poll
    hw   high watermark in the response, he the leader epoch of the broker that sent it
    fin  1: belongs to the final reads (the drain); an invocation may have it, too
hw, a reading of the committed end:
    hw   high watermark, e leader epoch: with r = ok
mark, loss that has a known reason:
    why  the reason
    e0   first leader epoch, e1 last leader epoch
    o0   first offset (missing: 0), o1 offset after the last (missing: no end)
digest, the content of a replica after healing:
    b    broker
    o0   first offset, o1 offset after the last
    d    digest
nemesis, shown and not judged:
    what event, on its target
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from tidelog.history.client_operations import (
    NO_BROKER,
    NO_PARTITION,
    OPEN_END,
    UNREADABLE_VALUE,
    HighWatermarkEnded,
    HighWatermarkInvoked,
    HistoryError,
    LossMark,
    Nemesis,
    Operation,
    Outcome,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
    SendEnded,
    SendInvoked,
)
from tidelog.model import NO_EPOCH, NO_OFFSET

HEADER_KIND = "tidelog-history"
VERSION = 1
_LARGEST = (1 << 63) - 1
_NONE = -1

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode
_outcomes = {outcome.value: outcome for outcome in Outcome}

_Fields = dict[str, Any]


def header_line() -> bytes:
    return _line({"k": HEADER_KIND, "version": VERSION})


def check_header(line: bytes) -> None:
    """Raises `HistoryError` unless this is the first line of a history of this version."""
    fields = _object(line)
    if fields.get("k") != HEADER_KIND:
        raise HistoryError(f"the first line of a history is {header_line().decode().rstrip()}")
    if fields.get("version") != VERSION:
        raise HistoryError(
            f"a history of version {fields.get('version')!r}; this program reads {VERSION}"
        )


def encode_operation(operation: Operation) -> bytes:
    """Returns one line with its newline."""
    return _line(_ENCODERS[type(operation)](operation))


def decode_operation(line: bytes) -> Operation:
    """Raises `HistoryError`."""
    fields = _object(line)
    kind = fields.get("k")
    decoder = _DECODERS.get(kind) if type(kind) is str else None
    if decoder is None:
        raise HistoryError(f"kind (k) is {kind!r}; known are {', '.join(_DECODERS)}")
    return decoder(fields)


def _line(fields: _Fields) -> bytes:
    return _encode(fields).encode("utf-8", "backslashreplace") + b"\n"


def _object(line: bytes) -> _Fields:
    try:
        # Half the time of json.loads, which detects other encodings and skips white space.
        text = line.decode()
        fields, end = _decode(text)
    except (ValueError, RecursionError) as error:
        raise HistoryError(f"no JSON: {error}") from error
    if type(fields) is not dict or text[end:] not in ("\n", ""):
        raise HistoryError("no JSON object that takes the whole line")
    return fields


def _known(**fields: int) -> _Fields:
    return {name: value for name, value in fields.items() if value != _NONE}


def _place(kind: str, operation: Any) -> _Fields:
    fields = {"k": kind, "t": operation.time_ms, "tp": operation.topic}
    if operation.partition != NO_PARTITION:
        fields["p"] = operation.partition
    return fields


def _send_invoked_fields(send: SendInvoked) -> _Fields:
    return {**_place("send", send), "c": send.client, "v": send.value}


def _send_ended_fields(send: SendEnded) -> _Fields:
    return {
        **_place("send", send),
        "c": send.client,
        "v": send.value,
        "r": send.outcome.value,
        **_known(o=send.offset, e=send.leader_epoch, b=send.broker_id),
    }


def _poll_invoked_fields(poll: PollInvoked) -> _Fields:
    final = {"fin": 1} if poll.final else {}
    return {**_place("poll", poll), "c": poll.client, **final}


def _poll_ended_fields(poll: PollEnded) -> _Fields:
    fields = {**_place("poll", poll), "c": poll.client, "r": poll.outcome.value}
    if poll.offsets:
        fields["os"] = list(poll.offsets)
        fields["vs"] = list(poll.values)
        fields["es"] = list(poll.leader_epochs)
    if poll.repositioned:
        fields["new"] = 1
    if poll.final:
        fields["fin"] = 1
    return fields | _known(hw=poll.high_watermark, he=poll.high_watermark_epoch)


def _hw_invoked_fields(reading: HighWatermarkInvoked) -> _Fields:
    return {**_place("hw", reading), "c": reading.client}


def _hw_ended_fields(reading: HighWatermarkEnded) -> _Fields:
    return {
        **_place("hw", reading),
        "c": reading.client,
        "r": reading.outcome.value,
        **_known(hw=reading.high_watermark, e=reading.leader_epoch),
    }


def _mark_fields(mark: LossMark) -> _Fields:
    fields = {
        **_place("mark", mark),
        "why": mark.reason,
        "e0": mark.first_epoch,
        "e1": mark.last_epoch,
    }
    if mark.first_offset:
        fields["o0"] = mark.first_offset
    if mark.end_offset != OPEN_END:
        fields["o1"] = mark.end_offset
    return fields


def _digest_fields(digest: ReplicaDigest) -> _Fields:
    return {
        **_place("digest", digest),
        "b": digest.broker_id,
        "o0": digest.start_offset,
        "o1": digest.end_offset,
        "d": digest.digest,
    }


def _nemesis_fields(nemesis: Nemesis) -> _Fields:
    fields: _Fields = {"k": "nemesis", "t": nemesis.time_ms, "what": nemesis.event}
    if nemesis.detail:
        fields["on"] = nemesis.detail
    return fields


_ENCODERS: dict[type, Callable[[Any], _Fields]] = {
    SendInvoked: _send_invoked_fields,
    SendEnded: _send_ended_fields,
    PollInvoked: _poll_invoked_fields,
    PollEnded: _poll_ended_fields,
    HighWatermarkInvoked: _hw_invoked_fields,
    HighWatermarkEnded: _hw_ended_fields,
    LossMark: _mark_fields,
    ReplicaDigest: _digest_fields,
    Nemesis: _nemesis_fields,
}


def _number(fields: _Fields, name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise HistoryError(f"{name} is {value!r}; it is a whole number from 0 to {_LARGEST}")
    return value


def _number_or(fields: _Fields, name: str, default: int) -> int:
    return _number(fields, name) if name in fields else default


def _text(fields: _Fields, name: str) -> str:
    value = fields.get(name)
    if type(value) is not str:
        raise HistoryError(f"{name} is {value!r}; it is text")
    # Names repeat in every line, and a checker keeps many of them.
    return sys.intern(value)


def _flag(fields: _Fields, name: str) -> bool:
    value = fields.get(name, 0)
    if type(value) is not int or value not in (0, 1):
        raise HistoryError(f"{name} is {value!r}; it is 1 or missing")
    return value == 1


def _outcome(fields: _Fields) -> Outcome:
    result = fields["r"]
    outcome = _outcomes.get(result) if type(result) is str else None
    if outcome is None:
        raise HistoryError(f"r is {result!r}; known are {', '.join(_outcomes)}")
    return outcome


def _column(fields: _Fields, name: str, lowest: int) -> list[int]:
    column = fields.get(name, [])
    if type(column) is not list:
        raise HistoryError(f"{name} is {column!r}; it is a list of whole numbers")
    if column and (
        set(map(type, column)) != {int} or min(column) < lowest or max(column) > _LARGEST
    ):
        raise HistoryError(f"{name} holds whole numbers from {lowest} to {_LARGEST}, nothing else")
    return column


def _decode_send(fields: _Fields) -> SendInvoked | SendEnded:
    time_ms, client = _number(fields, "t"), _text(fields, "c")
    topic, value = _text(fields, "tp"), _number(fields, "v")
    partition = _number_or(fields, "p", NO_PARTITION)
    if "r" not in fields:
        return SendInvoked(time_ms, client, topic, partition, value)
    outcome = _outcome(fields)
    if outcome is Outcome.OK and partition == NO_PARTITION:
        raise HistoryError("a send that is ok names its partition (p)")
    return SendEnded(
        time_ms,
        client,
        topic,
        partition,
        value,
        outcome,
        _number_or(fields, "o", NO_OFFSET),
        _number_or(fields, "e", NO_EPOCH),
        _number_or(fields, "b", NO_BROKER),
    )


def _decode_poll(fields: _Fields) -> PollInvoked | PollEnded:
    time_ms, client = _number(fields, "t"), _text(fields, "c")
    topic, partition = _text(fields, "tp"), _number(fields, "p")
    final = _flag(fields, "fin")
    if "r" not in fields:
        return PollInvoked(time_ms, client, topic, partition, final)
    outcome = _outcome(fields)
    offsets = _column(fields, "os", 0)
    values = _column(fields, "vs", UNREADABLE_VALUE)
    leader_epochs = _column(fields, "es", NO_EPOCH)
    if not len(offsets) == len(values) == len(leader_epochs):
        raise HistoryError(
            f"a poll of {len(offsets)} offsets (os), {len(values)} values (vs) and "
            f"{len(leader_epochs)} leader epochs (es); they are as many"
        )
    if offsets and outcome is not Outcome.OK:
        raise HistoryError(f"a poll that ended as {outcome.value} gave no records")
    return PollEnded(
        time_ms,
        client,
        topic,
        partition,
        outcome,
        offsets,
        values,
        leader_epochs,
        _flag(fields, "new"),
        _number_or(fields, "hw", NO_OFFSET),
        _number_or(fields, "he", NO_EPOCH),
        final,
    )


def _decode_hw(fields: _Fields) -> HighWatermarkInvoked | HighWatermarkEnded:
    time_ms, client = _number(fields, "t"), _text(fields, "c")
    topic, partition = _text(fields, "tp"), _number(fields, "p")
    if "r" not in fields:
        return HighWatermarkInvoked(time_ms, client, topic, partition)
    return HighWatermarkEnded(
        time_ms,
        client,
        topic,
        partition,
        _outcome(fields),
        _number_or(fields, "hw", NO_OFFSET),
        _number_or(fields, "e", NO_EPOCH),
    )


def _reason(fields: _Fields) -> str:
    reason = _text(fields, "why")
    if not reason:
        raise HistoryError("a mark names its reason (why)")
    return reason


def _decode_mark(fields: _Fields) -> LossMark:
    return LossMark(
        _number(fields, "t"),
        _text(fields, "tp"),
        _number(fields, "p"),
        _reason(fields),
        _number(fields, "e0"),
        _number(fields, "e1"),
        _number_or(fields, "o0", 0),
        _number_or(fields, "o1", OPEN_END),
    )


def _decode_digest(fields: _Fields) -> ReplicaDigest:
    return ReplicaDigest(
        _number(fields, "t"),
        _text(fields, "tp"),
        _number(fields, "p"),
        _number(fields, "b"),
        _number(fields, "o0"),
        _number(fields, "o1"),
        _text(fields, "d"),
    )


def _decode_nemesis(fields: _Fields) -> Nemesis:
    detail = _text(fields, "on") if "on" in fields else ""
    return Nemesis(_number(fields, "t"), _text(fields, "what"), detail)


_DECODERS: dict[str, Callable[[_Fields], Operation]] = {
    "send": _decode_send,
    "poll": _decode_poll,
    "hw": _decode_hw,
    "mark": _decode_mark,
    "digest": _decode_digest,
    "nemesis": _decode_nemesis,
}
