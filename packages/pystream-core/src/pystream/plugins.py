"""Brokers by URL, and the plugins of a service: found through entry points, loaded when asked for.

Two entry-point groups belong to core. `pystream.brokers` maps a URL scheme to a function
from the URL to a broker; only the one that is asked for is imported. `pystream.plugins`
holds the plugins that every service of the environment loads when it starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from typing import Any, Final, cast
from urllib.parse import unquote

from pystream._hooks import Hook, HookTable, freeze, validate_function
from pystream.errors import ConfigurationError, PluginError, PyStreamError
from pystream.protocols import Broker

__all__ = [
    "BLOCK_VARIABLE",
    "BROKER_GROUP",
    "PLUGIN_GROUP",
    "Hook",
    "HookTable",
    "broker",
    "freeze",
    "load_plugins",
    "validate_function",
]

BROKER_GROUP: Final = "pystream.brokers"
"""The entry-point group of broker factories, named by URL scheme."""

PLUGIN_GROUP: Final = "pystream.plugins"
"""The entry-point group of plugins."""

BLOCK_VARIABLE: Final = "PYSTREAM_BLOCK_PLUGINS"
"""The environment variable that names plugins, between commas, that are not to be loaded."""

for _public in (Hook, HookTable, freeze, validate_function):
    _public.__module__ = __name__

_EXTRAS: Final = {"pulsar": "pulsar", "pulsar+ssl": "pulsar"}
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


def broker(url: str) -> Broker:
    """A broker from its URL, made by the installed plugin whose entry point is named after the scheme.

    Nothing connects, and no other broker's plugin is imported.

    Args:
        url: For example `memory://` or `pulsar://localhost:6650`.

    Raises:
        ConfigurationError: The URL has no scheme, no plugin knows it, or its broker refuses it.
        PluginError: The broker's plugin cannot be imported, or gives something that is no broker.
    """
    match = _URL.fullmatch(f"{url}")
    if match is None:
        raise ConfigurationError(f"a broker URL looks like scheme://address; {_known(_brokers())}")

    scheme = match[1].lower()
    entry = _broker_entry(scheme)
    try:
        factory = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # importing runs foreign code, which may raise whatever it likes
        raise PluginError(f"the {_origin(entry)} cannot be imported: {_cause(error)}{_install_hint(scheme)}") from error

    return _make(factory, entry, match[0])


def load_plugins(plugins: Sequence[object] | None = None) -> list[tuple[str, object]]:
    """The plugins of a service that starts, each with its name, in registration order.

    Args:
        plugins: Exactly the plugins to use, in this order; or none to load the entry points
            of the group `pystream.plugins`, in the order of their names, less the names in
            the environment variable `PYSTREAM_BLOCK_PLUGINS`.

    Raises:
        PluginError: An entry point cannot be imported, two of them have one name, or a
            plugin was given twice.
    """
    if plugins is not None:
        return _explicit(plugins)

    blocked = {name.strip() for name in os.environ.get(BLOCK_VARIABLE, "").split(",")}
    wanted = [entry for entry in _entries(PLUGIN_GROUP) if entry.name not in blocked]
    _refuse_duplicates(wanted)
    return [(entry.name, _load_plugin(entry)) for entry in wanted]


def _explicit(plugins: Sequence[object]) -> list[tuple[str, object]]:
    named: dict[str, object] = {}
    for plugin in plugins:
        if any(plugin is known for known in named.values()):
            raise PluginError(f"plugin {_plugin_name(plugin)!r} was given twice to PyStream(plugins=...)")

        base = name = _plugin_name(plugin)
        number = 1
        while name in named:
            number += 1
            name = f"{base}#{number}"

        named[name] = plugin

    return list(named.items())


def _plugin_name(plugin: object) -> str:
    name = getattr(plugin, "__name__", None)
    return name if isinstance(name, str) else type(plugin).__qualname__


def _load_plugin(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # importing runs foreign code, which may raise whatever it likes
        raise PluginError(
            f"the {_origin(entry)} cannot be imported: {_cause(error)}; uninstall it, block it with "
            f"{BLOCK_VARIABLE}={entry.name}, or name the plugins to use with PyStream(plugins=[...])"
        ) from error


def _entries(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda entry: entry.name)


def _brokers() -> list[EntryPoint]:
    return _entries(BROKER_GROUP)


def _broker_entry(scheme: str) -> EntryPoint:
    installed = _brokers()
    found = [entry for entry in installed if entry.name == scheme]
    if not found:
        raise ConfigurationError(
            f"no installed broker knows the URL scheme {scheme!r}; {_known(installed)}{_install_hint(scheme)}"
        )

    _refuse_duplicates(found)
    return found[0]


def _refuse_duplicates(entries: Iterable[EntryPoint]) -> None:
    for one, other in pairwise(entries):
        if one.name == other.name:
            raise PluginError(
                f"{_distribution(one)} and {_distribution(other)} both register {one.name!r} in the "
                f"entry-point group {one.group}; uninstall one of them"
            )


def _make(factory: Any, entry: EntryPoint, url: str) -> Broker:
    if not callable(factory):
        raise PluginError(
            f"the {_origin(entry)} is of type {type(factory).__name__}, not a function from URL to broker"
        )

    refused: Exception | None = None
    made: Any = None
    try:
        made = factory(url)
    except Exception as error:
        refused = error

    # Raised out of the handler, so that a cause that shows the credentials is not kept as context either.
    if refused is not None:
        kind = ConfigurationError if isinstance(refused, PyStreamError) else PluginError
        cause, redacted = _redact(_cause(refused), url)
        raise kind(f"broker URL {_shown(url)!r} was refused: {cause}") from (None if redacted else refused)

    if not all(callable(getattr(made, name, None)) for name in ("connect", "default_source", "describe")):
        raise PluginError(f"the {_origin(entry)} made a {type(made).__name__}, which is not a Broker")

    return cast("Broker", made)


def _shown(url: str) -> str:
    """The URL's scheme and address, without user info, path and query."""
    scheme, _, rest = url.partition("://")
    hidden, at, rest = rest.rpartition("@")
    address = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return f"{scheme}://{'***' if hidden else ''}{at}{address}"


_SHORT = 3  # letters of a user name or password that are hidden only where they stand alone


def _redact(text: str, url: str) -> tuple[str, bool]:
    """The text without the URL's user info, and whether it was in there."""
    clean = text.replace(url, _shown(url))
    secrets = _secrets(url)
    for secret in sorted(secrets, key=len, reverse=True):
        # A short one is found within ordinary words, too: there it shows nothing.
        pattern = re.escape(secret) if len(secret) > _SHORT else rf"(?<!\w){re.escape(secret)}(?!\w)"
        clean = re.sub(pattern, "***", clean)

    return clean, bool(secrets) and clean != text


def _secrets(url: str) -> set[str]:
    """What may be the URL's user info, whole, in parts and decoded: any @ may be the one that ends it."""
    rest = url.partition("://")[2]
    found: set[str] = set()
    for end in re.finditer("@", rest):
        user_info = rest[: end.start()]
        user, _, password = user_info.partition(":")
        found.update(form for secret in (user_info, user, password) for form in (secret, unquote(secret)))

    return found - {""}


def _cause(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, PyStreamError) and text:
        return text

    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _origin(entry: EntryPoint) -> str:
    return f"entry point '{entry.name} = {entry.value}' ({entry.group}) of {_distribution(entry)}"


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"


def _known(installed: Iterable[EntryPoint]) -> str:
    schemes = ", ".join(dict.fromkeys(f"{entry.name}://" for entry in installed))
    return f"known schemes: {schemes or 'none'}"


def _install_hint(scheme: str) -> str:
    extra = _EXTRAS.get(scheme)
    return f'; it comes with: pip install "pystream[{extra}]"' if extra else ""
