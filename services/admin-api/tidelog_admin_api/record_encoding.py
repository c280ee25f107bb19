"""Keys, values and headers of records in JSON. Pure."""

from __future__ import annotations

import base64
import binascii
import enum
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

# Maximum nesting of arrays and objects. The serializer of answers fails at about 255 levels,
# including those of the answer itself, and other programs fail earlier.
MAX_DEPTH = 100


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
    if data is None:
        return Encoded(None, preferred)
    if preferred is not Encoding.BASE64:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        if text is not None:
            return _parsed(text) if preferred is Encoding.JSON else Encoded(text, Encoding.TEXT)
    return Encoded(base64.b64encode(data).decode(), Encoding.BASE64)


def _json_bytes(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise WrongEncodingError(
            "it is not a JSON value: NaN, infinities and very deep nesting are not supported"
        ) from error
    if _is_too_deep(value, text):
        raise WrongEncodingError(
            f"its arrays and objects are nested more than {MAX_DEPTH} deep; use encoding text or "
            "base64"
        )
    return _utf8(text)


def _parsed(text: str) -> Encoded:
    """Returns a JSON value, or the text if JSON would change its meaning.

    A JSON null would mean that there is no value. A very large number would become infinite.
    """
    try:
        value = json.loads(text, parse_constant=_reject)
        # A value with half of an escaped surrogate pair cannot be encoded as UTF-8.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return Encoded(text, Encoding.TEXT)
    if value is None or _is_too_deep(value, text):
        return Encoded(text, Encoding.TEXT)
    return Encoded(value, Encoding.JSON)


def _is_too_deep(value: Any, text: str) -> bool:
    """Whether arrays and objects are nested more than MAX_DEPTH deep.

    - `text`: the value as JSON; its number of brackets is sufficient in most cases
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [one for one in level if isinstance(one, dict | list)]
        level = [element for one in containers for element in _elements(one)]
        if not containers:
            return False
    return True


def _elements(one: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return one.values() if isinstance(one, dict) else one


def _reject(word: str) -> None:
    raise ValueError(f"{word} is not a JSON value")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise WrongEncodingError(
            f"its character {error.start} is half of a surrogate pair, which UTF-8 does not allow; "
            "use encoding base64"
        ) from error
