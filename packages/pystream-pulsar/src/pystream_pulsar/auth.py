"""`Token`: how a broker says who it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pystream.errors import ConfigurationError

from pystream_pulsar.errors import PulsarConnectError

__all__ = ["Token"]

_Source: TypeAlias = "str | Callable[[], str]"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Token:
    """A token that the server knows us by, such as a JSON Web Token. Never shown: not in a repr, an error or a log.

    Args:
        source: The token, or a function that gives it. The function is called for every
            connection that is made, from threads of the client too, so it must be safe to
            call from any thread; it may block, and it delays the connection while it does.

    Raises:
        ConfigurationError: The token is empty or cannot be one, or it is neither text nor a function.
    """

    _source: _Source

    def __init__(self, source: _Source) -> None:
        if isinstance(source, str):
            problem = _problem(source)
            if problem is not None:
                raise ConfigurationError(f"Token(...): the token {problem}")

        elif not callable(source):
            raise ConfigurationError(
                f"Token(...): give the token as text, or a function that gives it, not {type(source).__name__}"
            )

        object.__setattr__(self, "_source", source)

    def __repr__(self) -> str:
        return "Token(...)"

    @property
    def changes(self) -> bool:
        """Whether a function gives it, anew for every connection."""
        return not isinstance(self._source, str)

    def read(self) -> str:
        """The token as it is now. May block when a function gives it.

        Raises:
            PulsarConnectError: The function failed, or gave something that cannot be a token.
        """
        source = self._source
        if isinstance(source, str):
            return source

        try:
            token: object = source()
        except Exception as error:
            raise _unreadable(f"raised {type(error).__name__}") from error

        if not isinstance(token, str):
            raise _unreadable(f"gave {type(token).__name__}, not text")

        problem = _problem(token)
        if problem is not None:
            raise _unreadable(f"gave one that {problem}")

        return token


def _problem(token: str) -> str | None:
    if not token.strip():
        return "is empty"

    if not token.isascii() or not token.isprintable() or " " in token:
        return "holds a space, a line break or a character outside ASCII; strip what surrounds it"

    return None


def _unreadable(why: str) -> PulsarConnectError:
    return PulsarConnectError(
        f"the token could not be had: its function {why}", result="ErrorGettingAuthenticationData"
    )
