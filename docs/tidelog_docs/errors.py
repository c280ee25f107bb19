"""Error codes and the classes of the Python client, from `errors.proto` and `tidelog.errors`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import tidelog.client
from tidelog.errors import ErrorCode, TidelogError
from tidelog_docs.markdown import cell, code, table
from tidelog_docs.rpcs import comments, descriptors

_PREFIX = "ERROR_CODE_"
_ENUMS, _MEMBERS = 5, 2


def codes() -> str:
    described = _comments()
    return table(
        ("code", "number", "Python class", "meaning"),
        (
            (
                code(error.name),
                str(error.value),
                code(_class(error).__name__),
                # Some codes never travel; only the client raises them.
                cell(described.get(error.name, _doc(_class(error)))),
            )
            for error in ErrorCode
        ),
    )


def classes() -> str:
    return table(
        ("class", "base", "meaning"),
        (
            (code(c.__name__), ", ".join(code(b.__name__) for b in c.__bases__), cell(_doc(c)))
            for c in error_classes()
        ),
    )


def error_classes() -> Iterator[type[TidelogError]]:
    """Yields the classes that the client exports."""
    for name in tidelog.client.__all__:
        exported = getattr(tidelog.client, name)
        if isinstance(exported, type) and issubclass(exported, TidelogError):
            yield exported


def _class(error: ErrorCode) -> type[TidelogError]:
    return type(TidelogError(error, ""))


def _doc(of: type[Exception]) -> str:
    return (inspect.getdoc(of) or "").partition("\n\n")[0]


def _comments() -> dict[str, str]:
    """Returns the comments of the codes that travel."""
    [file] = [f for f in descriptors().file if f.name.endswith("/errors.proto")]
    known = comments(file)
    return {
        value.name.removeprefix(_PREFIX): known[_ENUMS, index, _MEMBERS, number]
        for index, enum in enumerate(file.enum_type)
        for number, value in enumerate(enum.value)
        if value.name.startswith(_PREFIX)
    }
