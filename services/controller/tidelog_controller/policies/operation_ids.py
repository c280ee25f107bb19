"""Valid ids of operations. Pure functions."""

from __future__ import annotations

import re

from tidelog.errors import ErrorCode, TidelogError

MAX_OPERATION_ID_LENGTH = 64

_FORM = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_OPERATION_ID_LENGTH}}}")


def check_operation_id(operation_id: str) -> None:
    if not _FORM.fullmatch(operation_id):
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the operation id {operation_id[:80]!r} cannot be; one has 1 to "
            f"{MAX_OPERATION_ID_LENGTH} characters out of a-z, A-Z, 0-9, '_' and '-'",
        )
