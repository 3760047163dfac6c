"""What goes wrong in tests, besides failed assertions."""

from __future__ import annotations

from pystream.errors import PyStreamError

__all__ = ["NotQuiescentError", "UnknownDestinationWarning"]


class NotQuiescentError(PyStreamError):
    """A reaction did not come to its end: it feeds itself, or something in it hangs."""


class UnknownDestinationWarning(UserWarning):
    """A destination was named that the app neither reads nor has published to."""
