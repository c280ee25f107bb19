"""Base classes and field types of all bodies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from tidelog.model import MAX_INT32, NO_EPOCH, NO_LEADER
from tidelog.request_bounds import MAX_TOPIC_NAME_LENGTH

MIN_INT32 = -(2**31)
MIN_INT64 = -(2**63)
MAX_INT64 = 2**63 - 1

Item = TypeVar("Item")

NEXT_PAGE_TOKEN = "page_token of the next page; empty: this is the last page"


def integral(value: Any) -> Any:
    """Converts a float without a fraction to an int: in JSON, 3.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# An integer in a request; strict models accept only `int` otherwise.
Integer = Annotated[int, BeforeValidator(integral)]

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
    BeforeValidator(integral),
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
        description="id that the client chooses: 1 to 64 letters, digits, '_' or '-'. A repeated "
        "request with the same id returns the same operation",
        examples=["grow-2026-01"],
    ),
]


def _none_for(nothing: int) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value == nothing else value)


# In answers: null if the client library has -1.
Leader = Annotated[
    int | None, _none_for(NO_LEADER), Field(description="broker id of the leader; null: no leader")
]
Epoch = Annotated[int | None, _none_for(NO_EPOCH), Field(description="leader epoch; null: none")]


def example(**fields: Any) -> ConfigDict:
    """Returns the `model_config` of a body with one example."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class RequestBody(BaseModel):
    """A request body. Unknown fields and values of another type are rejected, never converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AnswerBody(BaseModel):
    """An answer body, built from the client library's objects, which have the same fields."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, source: object, **fields: Any) -> Self:
        """Returns a body with `fields`. All other fields are copied from `source` by name."""
        copied = {name: getattr(source, name) for name in cls.model_fields if name not in fields}
        return cls.model_validate({**copied, **fields})

    def to_json(self) -> bytes:
        """Returns the body as JSON, as FastAPI would serialize it."""
        return self.__pydantic_serializer__.to_json(self)


class Page(AnswerBody, Generic[Item]):
    items: list[Item]
    next_page_token: str = Field(description=NEXT_PAGE_TOKEN)

    @classmethod
    def of_items(cls, items: Iterable[object], next_page_token: str) -> Self:
        """Returns a page. Objects of the client library are converted to items."""
        return cls.model_validate({"items": list(items), "next_page_token": next_page_token})
