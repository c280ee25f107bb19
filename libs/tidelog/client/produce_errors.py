"""Effects of a rejection on a batch, and the errors that its sender gets. Pure."""

from __future__ import annotations

from tidelog.client.sealed_batch import SealedBatch
from tidelog.errors import FINAL_ANSWERS, OUTCOME_UNKNOWN, ErrorCode, TidelogError
from tidelog.model import TopicPartition

# One batch of a group is at fault, and nothing was appended: the others may succeed without it.
SINGLE_BATCH_FAULTS = frozenset(
    {ErrorCode.BATCH_TOO_LARGE, ErrorCode.INVALID_BATCH, ErrorCode.INVALID_TIMESTAMP}
)
# After these a batch may be in the log. An internal fault of a broker may come after the append.
MAYBE_APPENDED = OUTCOME_UNKNOWN | {ErrorCode.INTERNAL}

# The leader's log does not reach up to the batch's sequence; nothing was appended.
SEQUENCE_REJECTED = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE, ErrorCode.UNKNOWN_PRODUCER_ID})


def maybe_appended(error: TidelogError) -> bool:
    """Returns whether a try that ended with this error may have appended its batches."""
    return error.outcome_unknown or error.code in MAYBE_APPENDED


def not_in_time(batch: SealedBatch, failures: int, last: TidelogError | None) -> TidelogError:
    unanswered = "without an answer" if batch.in_doubt else "without having been sent"
    tried = f"after {failures} failures" if failures else unanswered
    reason = f"; the last: {last.message}" if last is not None else ""
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"a batch of {batch.encoded.record_count} records for {batch.partition} was not "
        f"delivered within delivery_timeout_ms, {tried}{reason}; whether it was appended is "
        f"{'not known' if batch.in_doubt else 'known: it was not'}",
        outcome_unknown=batch.in_doubt,
    )


def final_error(batch: SealedBatch, error: TidelogError, topic_id: str = "") -> TidelogError:
    """Returns the error of a batch that is given up, with the code of `error`. Its
    `outcome_unknown` says whether a try may have appended this batch, regardless of other batches.
    `topic_id`: of the leader that rejected it."""
    if batch.in_doubt and error.code in SEQUENCE_REJECTED and topic_id != batch.doubt_topic_id:
        return _created_again(batch.partition.topic)
    if error.outcome_unknown == batch.in_doubt:
        return error
    if not batch.in_doubt:
        return TidelogError(
            error.code, f"{error.message}; this batch was not appended", outcome_unknown=False
        )
    return TidelogError(
        error.code,
        f"{error.message}; a try of this batch ended without a rejection, so whether it was "
        "appended is not known",
        outcome_unknown=True,
    )


def _created_again(topic: str) -> TidelogError:
    """Returns the error of a batch if the leader of a new topic does not know its producer."""
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        f"topic {topic!r} was deleted and created again; the new topic does not have this batch, "
        "and whether the deleted one had it is not known; send it again if it belongs there",
        outcome_unknown=True,
    )


def name_in_doubt(partition: TopicPartition, error: TidelogError) -> TidelogError:
    """Returns the error that ends a named producer whose sequences cannot continue."""
    of_one_topic = error.code in FINAL_ANSWERS
    return TidelogError(
        ErrorCode.UNKNOWN_PRODUCER_ID if of_one_topic else error.code,
        f"this named producer cannot continue: whether a batch for {partition} was appended is "
        f"not known ({error.message}); make a new producer with the same name, which "
        "finds its position by DescribeProducers",
    )


def not_written_before(partition: TopicPartition, error: TidelogError) -> TidelogError:
    """Returns the error that ends a producer with a given identity. Each record keeps its sequence
    when all are sent again, so nothing can be written after a gap."""
    return TidelogError(
        error.code,
        f"this producer cannot continue: a batch for {partition} was not written "
        f"({error.message}); make a new one, which begins at the position that DescribeProducers "
        "returns",
    )


def foreign_sequence(partition: TopicPartition, name: str) -> TidelogError:
    """Returns the error for a sequence that was written, but by no try of its batch. `name`: of the
    producer; empty: not known, because the identity was given."""
    of_name = f"the name {name!r}" if name else "the same name"
    return TidelogError(
        ErrorCode.FENCED_PRODUCER_EPOCH,
        f"another producer of {of_name} has written to {partition} in the meantime; only "
        "one may hold a name at a time",
    )


def name_taken(error: TidelogError, name: str) -> TidelogError:
    """Returns the error of a fenced named producer. `name`: as for `foreign_sequence`."""
    own = f"this one's name, {name!r}" if name else "this one's name"
    return TidelogError(
        error.code,
        f"another producer has taken over {own} ({error.message}); only one may "
        "hold it at a time, so close this one",
    )
