"""Checks the arguments of public methods before anything is sent.

`checks_arguments` decorates a class. Each parameter of a public method gets a rule, by the
parameter's name or else by its annotation. A parameter without a rule fails at import, so none is
forgotten. Methods that are called for each record are left out (`unchecked`), and check their
arguments themselves.

Every error is an `InvalidArgumentError`, which is a ValueError and a `TidelogError`; for a wrong
type it is also a TypeError. An invalid topic name is an `InvalidTopicNameError`.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import inspect
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tidelog.errors import ArgumentTypeError, InvalidArgumentError
from tidelog.model import MAX_INT32, OffsetPosition, TopicPartition
from tidelog.request_bounds import MAX_TIMEOUT_MS, check_timeout, check_topic_name
from tidelog.request_bounds import page_size as bounded_page_size

MAX_INT64 = 2**63 - 1
# Characters of a wrong value that a message shows.
_MAX_SHOWN = 60

Rule = Callable[[str, Any], Any]
_Class = TypeVar("_Class", bound=type)
_Enum = TypeVar("_Enum", bound=enum.Enum)


def shown(value: object) -> str:
    """Returns a printable, short form of a value for messages."""
    try:
        text = repr(value[: _MAX_SHOWN + 1] if isinstance(value, str | bytes) else value)
    except Exception:
        text = f"a {type(value).__name__}"
    text = text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def wrong_type(name: str, value: object, right: str) -> ArgumentTypeError:
    return ArgumentTypeError(f"{name} is {shown(value)} ({type(value).__name__}); give {right}")


def integer(name: str, value: Any, least: int | None = None, most: int = MAX_INT64) -> int:
    """Returns an int, converted without loss if necessary; rejects bool. Without `least`, any size
    passes: the request is rejected when it is built if its field cannot hold the number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong_type(name, value, "an integer")
    number = int(value.__index__())
    if least is not None and not least <= number <= most:
        raise InvalidArgumentError(
            f"{name} is {shown(number)}; give an integer from {least} to {most}"
        )
    return number


def natural(name: str, value: Any) -> int:
    return integer(name, value, 0)


def positive(name: str, value: Any) -> int:
    return integer(name, value, 1)


def int32(least: int) -> Rule:
    """Returns a rule for a setting that travels in a 32-bit field."""
    return lambda name, value: integer(name, value, least, MAX_INT32)


poll_timeout = int32(0)


def service_timeout(name: str, value: Any) -> int:
    """Checks a setting that limits how long a service may take."""
    return integer(name, value, 1, MAX_TIMEOUT_MS)


def timeout(name: str, value: Any) -> int:
    milliseconds = integer(name, value)
    check_timeout(milliseconds)
    return milliseconds


def page_size(name: str, value: Any) -> int:
    number = integer(name, value)
    bounded_page_size(number)
    return number


def offset_number(name: str, value: Any) -> int:
    number = integer(name, value)
    if not 0 <= number <= MAX_INT64:
        raise InvalidArgumentError(
            f"{name} {shown(number)} does not exist; offsets begin at 0 and end at {MAX_INT64} "
            "(seek_to_end finds the end of the log)"
        )
    return number


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(name, value, "True or False")
    return value


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type(name, value, "a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            f"{name} {shown(value)} cannot be sent, because it is no text in UTF-8; correct its "
            "characters"
        ) from None
    return value


def topic_name(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type(name, value, "the topic's name, a string")
    check_topic_name(text(name, value))
    return value


def topic_partition(name: str, value: Any) -> TopicPartition:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong_type(name, value, "a topic and a partition, as in ('sea', 0)")
    parts = [*value] if isinstance(value, tuple | list) else [None]
    if len(parts) != 2:
        raise InvalidArgumentError(
            f"{name} is {shown(value)}; give a topic and a partition, as in ('sea', 0)"
        )
    return TopicPartition(
        topic_name(f"{name}: topic", parts[0]),
        integer(f"{name}: partition", parts[1], 0, MAX_INT32),
    )


def several(rule: Rule) -> Rule:
    """Returns a rule for a sequence or another iterable that is neither a string nor a mapping."""

    def check(name: str, value: Any) -> list[Any]:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise wrong_type(name, value, "a sequence")
        return [rule(f"{name}[{place}]", item) for place, item in enumerate(value)]

    return check


def pair(rule: Rule) -> Rule:
    def check(name: str, value: Any) -> tuple[Any, ...]:
        items = several(rule)(name, value)
        if len(items) != 2:
            raise InvalidArgumentError(f"{name} is {shown(value)}; give two")
        return tuple(items)

    return check


def mapping(key: Rule, item: Rule) -> Rule:
    def check(name: str, value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise wrong_type(name, value, "a mapping")
        return {key(f"key of {name}", k): item(f"{name}[{shown(k)}]", v) for k, v in value.items()}

    return check


def choice(kind: type[_Enum]) -> Rule:
    """Returns a rule for a member of an enum, or the member's name in upper or lower case."""

    def check(name: str, value: Any) -> _Enum:
        if isinstance(value, kind):
            return value
        if isinstance(value, str):
            for member in kind:
                if value.lower() == member.name.lower():
                    return member
        known = ", ".join(repr(member.name.lower()) for member in kind)
        message = f"{name} is {shown(value)}; give one of {known}, or a member of {kind.__name__}"
        if isinstance(value, str):
            raise InvalidArgumentError(message)
        raise ArgumentTypeError(message)

    return check


def function(name: str, value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise wrong_type(name, value, "a function")
    checked: Callable[..., Any] = value
    return checked


def instance(kind: type) -> Rule:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise wrong_type(name, value, f"a {kind.__name__}")
        return value

    return check


def having(method: str) -> Rule:
    """Returns a rule for replacements of the network and the clock in tests."""

    def check(name: str, value: Any) -> Any:
        if not hasattr(value, method):
            raise wrong_type(name, value, f"an object with a method {method}")
        return value

    return check


def optional(rule: Rule) -> Rule:
    return lambda name, value: None if value is None else rule(name, value)


def addresses(name: str, value: Any) -> str | list[str]:
    """Checks the type of bootstrap addresses; `parse_bootstrap` checks their form."""
    return value if isinstance(value, str) else _texts(name, value)


_texts = several(text)


def or_empty(rule: Rule) -> Rule:
    """Returns a rule for a parameter whose default "" means that nothing is chosen."""
    return lambda name, value: value if value == "" else rule(name, value)


offset_position = choice(OffsetPosition)

BY_NAME: dict[str, Rule] = {
    "topic": topic_name,
    "topics": several(topic_name),
    "names": several(topic_name),
    "bootstrap": addresses,
    "timeout_ms": timeout,
    "expected_revision": natural,
    "page_size": page_size,
    "epoch": integer,
    "start": offset_position,
    "position": offset_position,
    "rng": instance(random.Random),
    "opening_room": instance(asyncio.Semaphore),
    "clock": having("monotonic_ms"),
    "connections": having("broker"),
}
_BY_ANNOTATION: dict[str, Rule] = {
    "int": integer,
    "str": text,
    "bool": flag,
    "Sequence[int]": several(integer),
    "Sequence[str]": several(text),
    "Assignment": several(several(integer)),
    "Mapping[str, str]": mapping(text, text),
    "Mapping[str, int]": mapping(topic_name, integer),
    "Mapping[str, Sequence[int]]": mapping(topic_name, several(integer)),
    "Mapping[TopicPartition, int]": mapping(topic_partition, integer),
    "Partitions": several(topic_partition),
    "TopicPartition | tuple[str, int]": topic_partition,
}


def checks_arguments(
    *, unchecked: Iterable[str] = (), **by_name: Rule
) -> Callable[[_Class], _Class]:
    """Returns a class decorator that checks the arguments of public methods.

    - `unchecked`: methods that check their arguments themselves.
    - `by_name`: rules for this class's parameters; they precede the rules for all classes."""

    def decorate(decorated: _Class) -> _Class:
        for name, method in vars(decorated).copy().items():
            is_public = not name.startswith("_") or name == "__init__"
            if is_public and inspect.isfunction(method) and name not in unchecked:
                setattr(decorated, name, _checked(method, by_name))
        return decorated

    return decorate


def _checked(method: Callable[..., Any], by_name: Mapping[str, Rule]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    rules = {
        parameter.name: _rule(parameter, by_name)
        for parameter in [*signature.parameters.values()][1:]
    }
    if not rules:
        return method

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if name in rules and value is not signature.parameters[name].default:
                bound.arguments[name] = rules[name](name, value)
        return bound

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            bound = bind(args, kwargs)
            return await method(*bound.args, **bound.kwargs)

        return call

    @functools.wraps(method)
    def call_at_once(*args: Any, **kwargs: Any) -> Any:
        bound = bind(args, kwargs)
        return method(*bound.args, **bound.kwargs)

    return call_at_once


def _rule(parameter: inspect.Parameter, by_name: Mapping[str, Rule]) -> Rule:
    annotation = str(parameter.annotation)
    required = annotation.removesuffix(" | None")
    rule = (
        by_name.get(parameter.name) or BY_NAME.get(parameter.name) or _BY_ANNOTATION.get(required)
    )
    if rule is None:
        raise LookupError(f"no rule checks the argument {parameter.name}: {annotation}")
    if parameter.default == "":
        return or_empty(rule)
    return optional(rule) if required != annotation else rule
