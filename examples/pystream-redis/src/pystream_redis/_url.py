"""The URL of a Redis server, checked before anything connects, and never shown whole."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from pystream.errors import ConfigurationError

__all__ = ["Address", "parse_url"]

_PORT = 6379
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))(?::(?P<port>\d{1,5}))?")
_HINT = "write redis://host:6379/0, with user:password@ before the host where it is needed"


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """Where a server is, and who asks; its text is the address without credentials."""

    host: str
    port: int
    database: int
    user: str | None
    password: str | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"redis://{host}:{self.port}/{self.database}"

    __repr__ = __str__


def parse_url(url: str) -> Address:
    """The parts of a URL.

    Raises:
        ConfigurationError: It cannot be used. The message shows nothing of the URL but its scheme.
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"the URL of a Redis broker is text, not {type(url).__name__}; {_HINT}")

    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ConfigurationError(f"the URL of a Redis broker has no scheme; {_HINT}")

    if scheme.lower() != "redis":
        raise ConfigurationError(f"{scheme!r} is no scheme of this Redis broker; {_HINT}")

    user_info, _, rest = rest.rpartition("@")
    user, _, password = user_info.partition(":")
    address, _, database = rest.partition("/")
    match = _HOST.fullmatch(address)
    if match is None or not 0 < int(match["port"] or _PORT) < 65536:
        raise ConfigurationError(f"the URL of a Redis broker has no usable host and port; {_HINT}")

    if not re.fullmatch(r"\d{0,4}", database):
        raise ConfigurationError(f"the URL of a Redis broker ends after the number of its database; {_HINT}")

    return Address(
        host=match["v6"] or match["name"],
        port=int(match["port"] or _PORT),
        database=int(database or 0),
        user=unquote(user) or None,
        password=unquote(password) or None,
    )
