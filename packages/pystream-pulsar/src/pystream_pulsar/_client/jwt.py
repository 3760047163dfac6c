"""When a JSON Web Token has expired: a server refuses an expired one without saying so."""

from __future__ import annotations

import base64
import datetime as dt
import json

__all__ = ["expired_at"]


def expired_at(token: str) -> str | None:
    """The time in UTC at which the token expired, or none while it has not, or says nothing of it."""
    try:
        claims = token.split(".")[1]
        padded = claims + "=" * (-len(claims) % 4)
        expiry = dt.datetime.fromtimestamp(json.loads(base64.urlsafe_b64decode(padded))["exp"], dt.UTC)
    except (ValueError, LookupError, TypeError, OverflowError, OSError):
        return None  # some other kind of token

    return expiry.isoformat(timespec="seconds") if expiry <= dt.datetime.now(dt.UTC) else None
