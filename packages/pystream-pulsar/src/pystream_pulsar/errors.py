"""The errors of the Pulsar plugin: core's, with what the client or the server answered."""

from __future__ import annotations

from typing import Any

from pystream.errors import ConnectError, PublishError, SettlementError, SubscribeError, SubscriptionEnded

__all__ = [
    "PulsarConnectError",
    "PulsarPublishError",
    "PulsarSettlementError",
    "PulsarSubscribeError",
    "PulsarSubscriptionEnded",
]


class _WithResult(Exception):
    """Keeps the name of the client's result, also when the error is pickled."""

    def __init__(self, message: str, *, result: str | None = None) -> None:
        self.result = result
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self.args, {"result": self.result})


class PulsarConnectError(_WithResult, ConnectError):
    """A cluster that cannot be reached or refused the connection.

    Attributes:
        result: The name of the server's or the client's result, such as `AuthenticationError`, or
            none when nothing of Pulsar has answered.
    """


class PulsarSubscribeError(_WithResult, SubscribeError):
    """A subscription that could not be opened.

    Attributes:
        result: The name of the client's result, such as `ConsumerBusy`, or none when it was not asked.
    """


class PulsarPublishError(_WithResult, PublishError):
    """A message that was refused or not confirmed, or a producer that could not be opened.

    Attributes:
        result: The name of the client's result, such as `Timeout`, or none when it was not asked.
    """


class PulsarSettlementError(_WithResult, SettlementError):
    """An acknowledgement or negative acknowledgement the client did not take.

    Attributes:
        result: The name of the client's result, such as `AlreadyClosed`.
    """


class PulsarSubscriptionEnded(_WithResult, SubscriptionEnded):
    """A consumer that will bring nothing any more.

    Attributes:
        result: The name of the client's result, such as `AlreadyClosed`.
    """
