"""`Link`: one connection to the server. The only module that knows redis-py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import anyio
from pystream.errors import PyStreamError
from redis.asyncio import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from pystream_redis._url import Address

__all__ = ["Answer", "BrokenLink", "Command", "Link", "Refusal"]

Command: TypeAlias = "tuple[str | bytes | int, ...]"
"""The words of a Redis command."""

Answer: TypeAlias = Any
"""What the server answered, as redis-py reads protocol 2: bytes, numbers, lists, none; or a `Refusal`."""

_STEP = 5.0
"""Seconds that connecting may take, and any command beyond the time it asks the server to wait."""


class BrokenLink(PyStreamError):
    """The connection could not be made or was lost; what was asked may have been done or not."""


class Refusal(PyStreamError):
    """The server's answer to a command was an error."""


class Link:
    """One connection, made when it is first used and again after it was lost.

    Nothing is sent twice: whoever asked decides whether it may be. One user at a time.

    Attributes:
        id: What the server calls the connection, or none before the first and after a lost one.
    """

    __slots__ = ("_connection", "_timeout", "id")

    def __init__(self, address: Address, *, patience: float = 0.0) -> None:
        self._timeout = _STEP + patience
        self._connection: Any = Connection(  # its methods are typed in part only
            host=address.host,
            port=address.port,
            db=address.database,
            username=address.user,
            password=address.password,
            protocol=2,
            socket_timeout=None,  # bounded here, as a whole
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
        )
        self.id: int | None = None

    async def run(self, commands: Sequence[Command]) -> list[Answer]:
        """Send the commands together; their answers in order.

        Raises:
            BrokenLink: The link could not be made or was lost, or the server took too long.

        Cancel safety: a cancelled run drops the connection; the next one makes a new one.
        """
        finished = False
        try:
            with anyio.fail_after(self._timeout):
                await self._connect()
                answers = await self._exchange(commands)

            finished = True
            return answers
        except TimeoutError as error:
            raise BrokenLink(f"no answer within {self._timeout:g} s") from error
        except (RedisError, OSError) as error:
            raise BrokenLink(str(error) or type(error).__name__) from error
        finally:
            if not finished:
                await self.close()

    async def close(self) -> None:
        """Drop the connection. Idempotent.

        Cancel safety: it does not wait for the server.
        """
        self.id = None
        with anyio.CancelScope(shield=True):
            await self._connection.disconnect(nowait=True)

    async def _connect(self) -> None:
        if self.id is not None:
            return

        await self._connection.connect()
        [number] = await self._exchange([("CLIENT", "ID")])
        if isinstance(number, Refusal):
            raise BrokenLink(str(number))

        self.id = number

    async def _exchange(self, commands: Sequence[Command]) -> list[Answer]:
        await self._connection.send_packed_command(self._connection.pack_commands(commands))
        return [await self._answer() for _ in commands]

    async def _answer(self) -> Answer:
        try:
            return await self._connection.read_response()
        except ResponseError as error:
            return Refusal(str(error))
