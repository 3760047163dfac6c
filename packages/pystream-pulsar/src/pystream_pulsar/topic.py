"""`PulsarTopic`: the name of a topic, in all the ways people write it."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pystream.errors import ConfigurationError

__all__ = ["Persistence", "PulsarTopic"]

Persistence: TypeAlias = Literal["persistent", "non-persistent"]
"""How the server keeps a topic's messages: in its storage, or in memory only."""

_SCHEMES = ("persistent", "non-persistent")
_NAMESPACE_PART = re.compile(r"[-=:.\w]+", re.ASCII)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class PulsarTopic:
    """A topic's name, resolved: `orders` is `persistent://public/default/orders`.

    Args:
        name: `orders`, `tenant/namespace/orders`, or a full name that begins with
            `persistent://` or `non-persistent://`.

    Attributes:
        tenant: The tenant, `public` unless one is named.
        namespace: The namespace without its tenant, `default` unless one is named.
        name: The local name.
        persistence: `persistent` unless the name says otherwise.

    Raises:
        ConfigurationError: It is no name of a topic; the message says which part and why.
    """

    tenant: str
    namespace: str
    name: str
    persistence: Persistence

    def __init__(self, name: str | PulsarTopic) -> None:
        if isinstance(name, PulsarTopic):
            name = name.full_name

        if not isinstance(name, str):
            raise ConfigurationError(f"a topic's name is text, not {type(name).__name__}")

        persistence, path = _split_scheme(name)
        tenant, namespace, local = _split_path(name, path)
        _check_namespace_part(name, "tenant", tenant)
        _check_namespace_part(name, "namespace", namespace)
        _check_local_name(name, local)
        for field, value in zip(self.__slots__, (tenant, namespace, local, persistence), strict=True):
            object.__setattr__(self, field, value)

    @property
    def full_name(self) -> str:
        """The name as the server spells it: `persistent://tenant/namespace/name`."""
        return f"{self.persistence}://{self.tenant}/{self.namespace}/{self.name}"

    @property
    def persistent(self) -> bool:
        """Whether the server stores its messages."""
        return self.persistence == "persistent"

    def __str__(self) -> str:
        return self.full_name

    def __repr__(self) -> str:
        return f"PulsarTopic({self.full_name!r})"


def _split_scheme(name: str) -> tuple[str, str]:
    scheme, separator, path = name.partition("://")
    if not separator:
        return "persistent", name

    if scheme not in _SCHEMES:
        raise _refusal(name, f"{scheme!r} is no kind of topic; write 'persistent://' or 'non-persistent://'")

    if path.count("/") != 2:
        raise _refusal(name, f"a full name is {scheme}://tenant/namespace/name")

    return scheme, path


def _split_path(name: str, path: str) -> tuple[str, str, str]:
    parts = path.split("/")
    if len(parts) == 1:
        return "public", "default", path

    if len(parts) == 3:
        return parts[0], parts[1], parts[2]

    raise _refusal(name, "write 'name', 'tenant/namespace/name' or a full name; a local name holds no '/'")


def _check_namespace_part(name: str, what: str, value: str) -> None:
    if not value:
        raise _refusal(name, f"the {what} is empty")

    if not _NAMESPACE_PART.fullmatch(value):
        raise _refusal(name, f"the {what} {value!r} may hold only ASCII letters, digits and any of _ - = : .")


def _check_local_name(name: str, local: str) -> None:
    if not local:
        raise _refusal(name, "the local name is empty")

    for character in local:
        if character.isspace() or unicodedata.category(character) in {"Cc", "Cs"}:
            raise _refusal(name, f"the local name holds {character!r}; it may hold no whitespace or control character")


def _refusal(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{name!r} is no name of a Pulsar topic: {why}")
