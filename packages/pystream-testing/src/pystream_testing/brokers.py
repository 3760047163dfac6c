"""The brokers of an app under test: to publish to, and as a state may be given them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pystream import Headers
from pystream.errors import ConfigurationError
from pystream.harness import Brokers
from pystream.protocols import ConnectedBroker, Key, Publisher
from pystream.publishing import encoder

from pystream_testing._recorder import TestOutgoing

__all__ = ["ConnectedBrokers", "TestBroker", "place_of"]

_NO_HEADERS: Mapping[str, bytes] = {}
_encode = encoder()


class ConnectedBrokers:
    """The connected brokers of an app whose state is about to be opened.

    Args:
        brokers: The app's, connected.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def __len__(self) -> int:
        return len(self._brokers)

    def __getitem__(self, broker: type | str) -> ConnectedBroker:
        return self.get(broker)

    def get(self, broker: type | str | None = None) -> ConnectedBroker:
        """One of them.

        Args:
            broker: Its label or its class; needed where there are several.

        Raises:
            ConfigurationError: None, or more than one, is meant; the text names them.
        """
        return self._brokers[place_of(self._brokers, broker)].connection


class TestBroker:
    """One broker of the app under test; given by `TestApp.broker`.

    Args:
        publisher: Sends.
        settle: Waits for the end of the reaction.
        first: Is told of each destination before the first message to it.
    """

    __test__ = False  # nothing for pytest to collect

    def __init__(
        self, publisher: Publisher, settle: Callable[[], Awaitable[None]], first: Callable[[str], object]
    ) -> None:
        self._publisher = publisher
        self._settle = settle
        self._first = first
        self._seen: set[str] = set()

    async def publish(
        self,
        destination: str,
        value: Any,
        *,
        key: Key | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        options: Any = None,
        wait: bool = True,
    ) -> None:
        """Publish one message, and return when everything it has set off is over, on every broker.

        Args:
            destination: The topic, queue or subject, as the broker spells it.
            value: `bytes` are sent as they are, everything else as JSON.
            key: What keeps messages in order with each other.
            headers: Sent as written; text is encoded as UTF-8.
            options: A value of the broker's own options type.
            wait: Whether to wait for the reaction; without, `TestApp.settle` does.

        Raises:
            PublishError: The value cannot be encoded, or the broker refused the message.
            NotQuiescentError: The reaction did not come to an end.
            BrokerClosed: The service has stopped.

        Cancel safety: a cancelled publish may or may not have been sent.
        """
        if destination not in self._seen:
            self._first(destination)
            self._seen.add(destination)

        sent = Headers(headers) if headers else _NO_HEADERS
        await self._publisher.publish(TestOutgoing(destination, _encode(value), sent, key), options)
        if wait:
            await self._settle()


def place_of(brokers: Brokers, broker: type | str | None) -> int:
    """The place of the broker that is meant among the app's.

    Args:
        brokers: The app's.
        broker: A label or a class; none where there is one broker.

    Raises:
        ConfigurationError: None, or more than one, is meant; the text names them.
    """
    found = [
        place
        for place, item in enumerate(brokers)
        if broker is None or broker == item.label or (isinstance(broker, type) and isinstance(item.broker, broker))
    ]
    if len(found) == 1:
        return found[0]

    names = ", ".join(item.name for item in brokers) or "none"
    wanted = "a broker" if broker is None else broker.__name__ if isinstance(broker, type) else repr(broker)
    raise ConfigurationError(
        f"{wanted} was asked for, and {len(found)} of the app's brokers match; they are: {names}. "
        "Give a label or a class that one of them has"
    )
