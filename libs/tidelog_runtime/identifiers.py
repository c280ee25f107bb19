"""Random unique ids."""

from __future__ import annotations

import base64
import random

ID_BYTES = 16


def new_id(rng: random.Random) -> str:
    """Returns 16 random bytes as 22 characters of base64url, as the id of a topic or cluster."""
    return base64.urlsafe_b64encode(rng.randbytes(ID_BYTES)).rstrip(b"=").decode()
