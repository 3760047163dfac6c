"""`MemorySubscription`: the descriptor of a subscription on the memory broker."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType

from pystream.errors import ConfigurationError
from pystream.protocols import RetryKind, SourceParameters

__all__ = ["MemorySubscription"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NO_PARAMETERS: SourceParameters = MappingProxyType({})


def name_refusal(name: object) -> str | None:
    """Why `name` is no name on the memory broker, or none if it is one."""
    if not isinstance(name, str):
        return f"a name on the memory broker is a str, not {type(name).__name__}"

    if not name:
        return "a name on the memory broker has at least one character, and this one is empty"

    if _CONTROL.search(name):
        return f"a name on the memory broker has no control characters, and {name!r} has one"

    return None


@dataclass(frozen=True, slots=True)
class MemorySubscription:
    """Where a handler's deliveries come from on a `MemoryBroker`: everything published to one name.

    Every mounted handler has a subscription of its own, so two handlers of one name both
    get every message. Implements `pystream.protocols.SubscriptionSource`.

    Args:
        name: What publishers call the destination; one character or more, none of them a
            control character. Names differ by case.

    Raises:
        ConfigurationError: The name is none.
    """

    name: str

    def __post_init__(self) -> None:
        refusal = name_refusal(self.name)
        if refusal is not None:
            raise ConfigurationError(f"MemorySubscription: {refusal}")

    @property
    def retry(self) -> RetryKind:
        """`broker`: a retried delivery goes back to the broker, which hands it out again."""
        return "broker"

    @property
    def batch_wait(self) -> float | None:
        """None: the runtime's own wait for a batch to fill."""
        return None

    @property
    def max_delay(self) -> float | None:
        """None: a delay may be as long as it likes."""
        return None

    @property
    def copies_to(self) -> str | None:
        """The name: a copy for another attempt goes to all who read it."""
        return self.name

    @property
    def parameters(self) -> SourceParameters:
        """Empty: a handler gets nothing here that it does not get from every broker."""
        return _NO_PARAMETERS
