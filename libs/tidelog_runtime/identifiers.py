"""Random names for things that must never be mistaken for one another."""

from __future__ import annotations

import base64
import random

ID_BYTES = 16


def new_id(rng: random.Random) -> str:
    """16 random bytes as 22 characters of base64url, for topics and clusters."""
    return base64.urlsafe_b64encode(rng.randbytes(ID_BYTES)).rstrip(b"=").decode()
