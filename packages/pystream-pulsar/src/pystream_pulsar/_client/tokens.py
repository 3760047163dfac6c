"""The token on its way to the server: read without holding up the loop, and asked for by the client."""

from __future__ import annotations

import logging

import anyio
import anyio.to_thread

from pystream_pulsar._client.callbacks import guarded
from pystream_pulsar.auth import Token
from pystream_pulsar.errors import PulsarConnectError

__all__ = ["TokenSupplier", "read_token"]

_log = logging.getLogger("pystream_pulsar")


async def read_token(token: Token, *, timeout: float) -> str:
    """The token as it is now.

    Args:
        token: Where it comes from.
        timeout: Seconds that a function may take for it.

    Raises:
        PulsarConnectError: It could not be had, or not in time.

    Cancel safety: a function that blocks is left to itself.
    """
    if not token.changes:
        return token.read()

    try:
        with anyio.fail_after(timeout):
            return await anyio.to_thread.run_sync(token.read, abandon_on_cancel=True)

    except TimeoutError as error:
        raise PulsarConnectError(
            f"the token could not be had: its function did not give one within {timeout:.3g} s", result="Timeout"
        ) from error


class TokenSupplier:
    """What the client asks for the token, on a thread of its own, at every connection it makes.

    An exception would abort the process (trap 8), so one that cannot be had is replaced by
    the latest, which the server accepts or refuses.

    Args:
        token: Where it comes from.
        latest: The token that the server has accepted.
    """

    def __init__(self, token: Token, latest: str) -> None:
        self._token = token
        self._latest = latest
        self._renew = guarded(self._read)

    def __call__(self) -> str:
        self._renew()
        return self._latest

    def _read(self) -> None:
        try:
            self._latest = self._token.read()
        except PulsarConnectError as error:
            _log.warning("%s; the latest one is sent again", error)
