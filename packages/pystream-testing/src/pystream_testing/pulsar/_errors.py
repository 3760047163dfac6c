"""Why there is no embedded server."""

from __future__ import annotations

from pystream.errors import PyStreamError

__all__ = ["EmbeddedServerError", "EmbeddedServerMissing"]


class EmbeddedServerError(PyStreamError):
    """The embedded server did not start, or has died."""


class EmbeddedServerMissing(EmbeddedServerError):
    """The embedded server is not installed, or there is none for this platform."""
