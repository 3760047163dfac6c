"""`Subject`: what a plugin's author says about a broker so that the suite can try it."""

from __future__ import annotations

import itertools
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pystream.protocols import Broker, PublishPolicy

__all__ = ["IN_PROCESS", "LIVE", "Bounds", "Capabilities", "HeaderKind", "Subject"]

HeaderKind: TypeAlias = Literal["many", "empty", "binary", "framework"]
"""Unusual headers: 24 of them, an empty value, a value that is no text, a name of the framework's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long things may take, in seconds, each above 0.

    Attributes:
        construct: Making a broker object.
        connect: `Broker.connect`.
        shutdown: Closing a subscriber or a connection.
        step: Any other single call: a subscribe, a publish, a settlement.
        arrival: From a publish, a requeue or a new subscription to the delivery.
        silence: How long "nothing comes" is waited for.
    """

    construct: float = 1.0
    connect: float = 10.0
    shutdown: float = 10.0
    step: float = 2.0
    arrival: float = 2.0
    silence: float = 0.1


IN_PROCESS = Bounds()
"""The bounds of a broker that runs in the process of the tests."""

LIVE = Bounds(arrival=10.0, silence=0.5)
"""The bounds of a broker whose server is a process of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a broker can do. The defaults claim everything; what is not claimed is skipped, or tried to be refused.

    Attributes:
        settlement: Deliveries can be acknowledged and rejected. If not, every settlement
            must raise `SettlementUnsupported`.
        requeue: A delivery can be handed out again. If not, `requeue` must raise
            `SettlementUnsupported` and leave the delivery unsettled.
        retry_after: Deliveries have the capability `pystream.protocols.RetryAfter`.
        counts: `delivery_count` is a number. If not, it must be none, and so it must be without `requeue`.
        backlog: A subscription that exists collects messages, and keeps unsettled ones, while
            it has no consumer.
        ordered: Messages without a key arrive in the order of their publishing.
        keys: Messages carry a key, and those of one key stay in order.
        readers: One destination may have several subscriptions.
        repeats: A message may arrive more than once although nobody asked for it.
        refused_headers: The unusual headers whose publish is refused.
    """

    settlement: bool = True
    requeue: bool = True
    retry_after: bool = True
    counts: bool = True
    backlog: bool = True
    ordered: bool = True
    keys: bool = True
    readers: bool = True
    repeats: bool = False
    refused_headers: frozenset[HeaderKind] = frozenset()


_run = uuid.uuid4().hex[:8]
_numbers = itertools.count(1)


class Subject(ABC):
    """The broker under test: how to make one, how to name things on it, what it can do.

    Attributes:
        capabilities: What the broker claims.
        live: Whether its server is another process; the waits are longer then.
        policy: How the suite publishes, or none for the broker's default.
    """

    capabilities: Capabilities = Capabilities()
    live: bool = False
    policy: PublishPolicy | None = None

    @property
    def bounds(self) -> Bounds:
        """How long things may take; `LIVE` or `IN_PROCESS` as `live` says."""
        return LIVE if self.live else IN_PROCESS

    @abstractmethod
    def broker(self) -> Broker:
        """A new broker object. Called once or more by each check, also in threads without a loop."""

    def source(self, broker: Broker, destination: str, subscription: str) -> Any:
        """The descriptor of a subscription to `destination`. By default the broker's own for the bare name.

        Args:
            broker: What `broker()` has made.
            destination: What `destination()` has made.
            subscription: Tells subscriptions of one destination apart. The suite gives it to the
                `pystream.protocols.Mounting` as well, so a broker that goes by that needs nothing here.
                A subscription that is new begins with the next message published.
        """
        return broker.default_source(destination)

    def destination(self, beginning: str) -> str:
        """The name of a destination that no other check and no other run uses.

        Args:
            beginning: What it is to begin with, for people who read the server's logs.
        """
        return f"{beginning}-{_run}-{next(_numbers)}"
