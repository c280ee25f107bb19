"""What all bodies share. Their fields are named as in admin.proto and in what the CLI writes
with --json."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from tidelog.model import MAX_INT32, NO_EPOCH, NO_LEADER
from tidelog.request_bounds import MAX_TOPIC_NAME_LENGTH

MIN_INT32 = -(2**31)
MIN_INT64 = -(2**63)
MAX_INT64 = 2**63 - 1


def whole(value: Any) -> Any:
    """JSON has one kind of number, and 3.0 is an integer of it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Of a request; strict models take nothing but an integer otherwise.
Integer = Annotated[int, BeforeValidator(whole)]

# What the wire cannot carry is refused here, by name. What it can carry and cannot be, the cluster
# refuses, so that it is told as gRPC and the commands tell it; the document says it all the same.
MAX_TEXT = 1_000


def documented(**keywords: Any) -> JsonDict:
    """`json_schema_extra` of a field whose own bounds are those of the wire."""
    return {**keywords}


TopicName = Annotated[
    str,
    Field(
        max_length=MAX_TEXT,
        description="name of a topic: 1 to 200 letters, digits, '.', '_' or '-'",
        examples=["sea"],
        json_schema_extra=documented(minLength=1, maxLength=MAX_TOPIC_NAME_LENGTH),
    ),
]
# The validator comes last: what follows one is not in the document.
WireInt = Annotated[
    int,
    Field(ge=MIN_INT32, le=MAX_INT32, json_schema_extra=documented(minimum=0)),
    BeforeValidator(whole),
]
PartitionNumber = Annotated[
    WireInt, Field(description="number of a partition, from 0", examples=[0])
]
BrokerId = Annotated[WireInt, Field(description="id of a broker", examples=[1])]
OperationId = Annotated[
    str,
    Field(
        max_length=MAX_TEXT,
        json_schema_extra=documented(pattern=r"^[a-zA-Z0-9_-]{1,64}$"),
        description="chosen by who asks, 1 to 64 letters, digits, '_' or '-': the same request "
        "sent again is the same operation and answers with it",
        examples=["grow-2026-01"],
    ),
]


def _none_for(nothing: int) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value == nothing else value)


# In answers, where the client has -1.
Leader = Annotated[
    int | None, _none_for(NO_LEADER), Field(description="broker id; null: nobody leads")
]
Epoch = Annotated[int | None, _none_for(NO_EPOCH), Field(description="null: there was none")]


def example(**fields: Any) -> ConfigDict:
    """For an answer's `model_config`."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class RequestBody(BaseModel):
    """Nothing is guessed: a field that is not known, or of another type, is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AnswerBody(BaseModel):
    """Made from the client's own values, whose fields have the same names."""

    model_config = ConfigDict(from_attributes=True)
