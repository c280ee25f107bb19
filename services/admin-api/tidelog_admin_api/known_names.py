"""Names that a request may have, for the errors about others. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

# Characters of an unknown name that are compared with the known ones.
_MAX_COMPARED = 100


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Returns the message about a parameter or field that does not exist.

    >>> unknown("field", "partition", ["partitions", "topic"])
    'unknown field; did you mean partitions? Valid fields are partitions, topic'
    >>> unknown("parameter", "force", [])
    'unknown parameter; this operation has none'
    """
    if not known:
        return f"unknown {kind}; this operation has none"
    close = get_close_matches(name[:_MAX_COMPARED], known, n=1)
    hint = f"did you mean {close[0]}? Valid" if close else "valid"
    return f"unknown {kind}; {hint} {kind}s are {', '.join(known)}"


def fields_at(body: Any, location: Sequence[str | int]) -> list[str]:
    """Returns the names of the fields of an object within a body.

    - `body`: the type annotation of the body
    - `location`: keys and indexes that lead to the object
    """
    models = list(_models(body))
    for part in location:
        if not isinstance(part, int):
            inner = [model.model_fields.get(part) for model in models]
            models = [found for field in inner if field for found in _models(field.annotation)]
    return sorted({name for model in models for name in model.model_fields})


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
