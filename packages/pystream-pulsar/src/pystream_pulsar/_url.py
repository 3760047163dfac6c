"""The service URL of a Pulsar cluster: checked here, since the client is forgiving and shows what it got."""

from __future__ import annotations

import re

from pystream.errors import ConfigurationError

__all__ = ["service_url", "uses_tls"]

_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))(?::(?P<port>\d*))?")
_WITH_TLS = "pulsar+ssl"
_PORTS = {"pulsar": 6650, _WITH_TLS: 6651}
_HINT = "write pulsar://host:6650, with several hosts between commas"


def service_url(url: str) -> str:
    """The URL in its plain form: every host with its port, no path.

    Raises:
        ConfigurationError: It cannot be used. The message never shows user information.
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"the URL of a Pulsar broker is text, not {type(url).__name__}; {_HINT}")

    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ConfigurationError(f"the URL of a Pulsar broker has no scheme; {_HINT}")

    scheme = scheme.lower()
    if scheme not in _PORTS:
        raise ConfigurationError(f"{scheme!r} is no scheme of a Pulsar broker; {_HINT}")

    if "@" in rest:
        raise ConfigurationError(
            "the URL of a Pulsar broker holds user information before an '@'; Pulsar has none in its URL, take it out"
        )

    hosts, _, path = rest.partition("/")
    if path or "?" in rest or "#" in rest:
        raise ConfigurationError(
            "the URL of a Pulsar broker ends after its hosts: no path, query or fragment; options are arguments of "
            "PulsarBroker"
        )

    return f"{scheme}://" + ",".join(_address(host, _PORTS[scheme]) for host in hosts.split(","))


def uses_tls(url: str) -> bool:
    """Whether a URL that `service_url` has given asks for TLS."""
    return url.startswith(f"{_WITH_TLS}://")


def _address(host: str, default_port: int) -> str:
    if not host.strip():
        raise ConfigurationError(f"the URL of a Pulsar broker lacks a host; {_HINT}")

    match = _HOST.fullmatch(host.strip())
    if match is None:
        raise ConfigurationError(f"{host!r} in the URL of a Pulsar broker is no host and port; {_HINT}")

    port = int(match["port"] or default_port)
    if not 0 < port < 65536:
        raise ConfigurationError(f"port {port} in the URL of a Pulsar broker is none; {_HINT}")

    name = f"[{match['v6']}]" if match["v6"] else match["name"]
    return f"{name}:{port}"
