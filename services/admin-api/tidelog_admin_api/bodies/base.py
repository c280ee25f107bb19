"""Base classes and field types of all bodies.

Fields are named as in `admin.proto` and in the CLI's --json output.
"""

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
    """Converts a float without a fraction to an int: in JSON, 3.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# An integer in a request; strict models accept only `int` otherwise.
Integer = Annotated[int, BeforeValidator(whole)]

# The gateway rejects, by field name, only what the wire format cannot carry. The cluster rejects
# other invalid values, so that REST, gRPC and CLI report the same error. The OpenAPI document
# states those bounds, too.
MAX_TEXT = 1_000


def documented(**keywords: Any) -> JsonDict:
    """Returns `json_schema_extra`: bounds that are documented here and checked by the cluster."""
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
# The validator comes last: constraints after a validator are not in the OpenAPI document.
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


# In answers: null where the client has -1.
Leader = Annotated[
    int | None, _none_for(NO_LEADER), Field(description="broker id; null: nobody leads")
]
Epoch = Annotated[int | None, _none_for(NO_EPOCH), Field(description="null: there was none")]


def example(**fields: Any) -> ConfigDict:
    """Returns the `model_config` of an answer with one example."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class RequestBody(BaseModel):
    """A request body. Unknown fields and values of another type are rejected, never converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AnswerBody(BaseModel):
    """An answer body, built from the client library's objects, which have the same fields."""

    model_config = ConfigDict(from_attributes=True)
