"""Keys, values and headers of records in JSON. Pure."""

from __future__ import annotations

import base64
import binascii
import enum
from collections.abc import Generator, Iterable
from math import isfinite
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError, from_json, to_json

from tidelog_runtime.cooperative import finished

# Maximum nesting of arrays and objects. The serializer of answers fails at about 255 levels,
# including those of the answer itself, and other programs fail earlier.
MAX_DEPTH = 100
# The largest double has 1,024 bits.
MAX_NUMBER_BITS = 1_024


class Encoding(enum.StrEnum):
    """How JSON represents a key or value. Null means no key or value in each encoding.

    - `json`: any JSON value, stored as UTF-8 without spaces
    - `text`: a string, stored as UTF-8
    - `base64`: bytes
    """

    JSON = "json"
    TEXT = "text"
    BASE64 = "base64"


class Encoded(NamedTuple):
    """A value in its encoding."""

    value: Any
    encoding: Encoding


class WrongEncodingError(ValueError):
    """The value does not match its encoding; the message says what is valid."""


def to_bytes(value: Any, encoding: Encoding) -> bytes | None:
    """Returns the stored bytes. Raises `WrongEncodingError`.

    >>> to_bytes({"tide": "ebb"}, Encoding.JSON)
    b'{"tide":"ebb"}'
    >>> to_bytes("ebb", Encoding.TEXT), to_bytes("ZWJi", Encoding.BASE64)
    (b'ebb', b'ebb')
    """
    if value is None:
        return None
    if encoding is Encoding.JSON:
        return _json_bytes(value)
    if not isinstance(value, str):
        raise WrongEncodingError(
            f"with encoding {encoding} it must be a string or null; encoding json accepts any value"
        )
    if encoding is Encoding.TEXT:
        return _utf8(value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise WrongEncodingError(
            f"it is not base64 ({error}): use A-Z, a-z, 0-9, + and /, padded with ="
        ) from error


def from_bytes(data: bytes | None, preferred: Encoding) -> Encoded:
    """Returns the value in the preferred encoding. Falls back from JSON to text, and to base64.

    >>> from_bytes(b'{"tide":"ebb"}', Encoding.JSON)
    Encoded(value={'tide': 'ebb'}, encoding=<Encoding.JSON: 'json'>)
    >>> from_bytes(b"ebb", Encoding.JSON).encoding, from_bytes(bytes([255]), Encoding.TEXT).value
    (<Encoding.TEXT: 'text'>, '/w==')
    """
    return finished(decoding(data, preferred))


def decoding(data: bytes | None, preferred: Encoding) -> Generator[None, None, Encoded]:
    """Returns the same as `from_bytes`. Yields between steps that take long for a large value."""
    if data is None:
        return Encoded(None, preferred)
    if preferred is not Encoding.BASE64:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        if text is not None:
            if preferred is Encoding.TEXT:
                return Encoded(text, Encoding.TEXT)
            return (yield from _parsing(data, text))
    return Encoded(base64.b64encode(data).decode(), Encoding.BASE64)


def _json_bytes(value: Any) -> bytes:
    fault = finished(_finding_fault(value))
    if fault is not None:
        raise WrongEncodingError(fault.value)
    try:
        return to_json(value)
    except PydanticSerializationError as error:
        raise WrongEncodingError(
            "it has half of a surrogate pair, which UTF-8 does not allow; use encoding base64"
        ) from error


def _parsing(data: bytes, text: str) -> Generator[None, None, Encoded]:
    """Returns a JSON value, or the text if JSON would change its meaning.

    A JSON null would mean that there is no value. A very large number would become infinite. Most
    programs cannot read a larger integer than MAX_NUMBER_BITS, and it takes long to write.

    - `text`: the decoded data
    """
    try:
        value = from_json(data, allow_inf_nan=False, cache_strings=False)
    except ValueError:
        return Encoded(text, Encoding.TEXT)
    yield
    fault = yield from _finding_fault(value)
    if value is None or fault is not None:
        return Encoded(text, Encoding.TEXT)
    return Encoded(value, Encoding.JSON)


class _Fault(enum.Enum):
    """Why a value is neither written nor answered as JSON."""

    TOO_DEEP = (
        f"its arrays and objects are nested more than {MAX_DEPTH} deep; use encoding text or base64"
    )
    NOT_FINITE = "it is not a JSON value: NaN and infinities are not supported"
    TOO_LARGE_NUMBER = (
        f"it has an integer of more than {MAX_NUMBER_BITS} bits; use encoding text or base64"
    )


def _finding_fault(value: Any) -> Generator[None, None, _Fault | None]:
    """Returns the first fault of the value. Yields after each level of its arrays and objects."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if any(type(one) is float and not isfinite(one) for one in level):
            return _Fault.NOT_FINITE
        if any(type(one) is int and one.bit_length() > MAX_NUMBER_BITS for one in level):
            return _Fault.TOO_LARGE_NUMBER
        containers = [one for one in level if isinstance(one, dict | list)]
        if not containers:
            return None
        level = [element for one in containers for element in _elements(one)]
        yield
    return _Fault.TOO_DEEP


def _elements(one: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return one.values() if isinstance(one, dict) else one


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise WrongEncodingError(
            f"its character {error.start} is half of a surrogate pair, which UTF-8 does not allow; "
            "use encoding base64"
        ) from error
