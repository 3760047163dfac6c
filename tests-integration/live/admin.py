"""A little of the admin interface: what tests ask a server that its protocol does not tell."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

__all__ = ["Admin", "AdminError", "SubscriptionStats"]

_TIMEOUT = 20.0
_PREFIX = "persistent://"


class AdminError(Exception):
    """The admin interface refused or failed.

    Attributes:
        status: The HTTP status, or 0 when nothing answered.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True)
class SubscriptionStats:
    """What the server says of one subscription.

    Attributes:
        type: Its type as the server spells it (`Shared`, `Key_Shared`, ...), or none without a consumer.
        backlog: How many *entries* are not acknowledged; a producer batch is one.
        unacknowledged: How many *messages* its consumers hold.
        consumers: How many there are.
    """

    type: str | None
    backlog: int
    unacknowledged: int
    consumers: int


class Admin:
    """The admin interface of one server. Every call blocks, for 20 seconds at most.

    Args:
        url: `http://host:port` or `https://host:port`.
        token: Sent with every request, or none.
        trust: How an https server is recognised, or none for the system's way.
    """

    def __init__(self, url: str, *, token: str | None = None, trust: ssl.SSLContext | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        self._trust = trust
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def ready(self) -> bool:
        """Whether the server can serve topics: its default namespace is there."""
        try:
            self._call("GET", "namespaces/public/default", timeout=2)
        except AdminError:
            return False

        return True

    def version(self) -> str:
        """The server's version."""
        return str(self._call("GET", "brokers/version"))

    def create_namespace(self, namespace: str) -> None:
        """Create `tenant/name`."""
        self._call("PUT", f"namespaces/{namespace}", {})

    def delete_namespace(self, namespace: str) -> None:
        """Delete `tenant/name`, which must have no topics any more."""
        self._call("DELETE", f"namespaces/{namespace}")

    def namespaces(self, tenant: str) -> list[str]:
        """Those of a tenant, as `tenant/name`."""
        return list(self._call("GET", f"namespaces/{tenant}"))

    def create_partitioned(self, topic: str, partitions: int) -> None:
        """Create a partitioned topic."""
        self._call("PUT", f"{_path(topic)}/partitions", partitions)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 for one that is not partitioned."""
        return int(self._call("GET", f"{_path(topic)}/partitions")["partitions"])

    def topics(self, namespace: str) -> list[str]:
        """The full names of a namespace's topics, partitions singly."""
        return list(self._call("GET", f"persistent/{namespace}"))

    def subscription(self, topic: str, name: str) -> SubscriptionStats:
        """What the server says of a topic's subscription."""
        stats = self._call("GET", f"{_path(topic)}/stats")["subscriptions"][name]
        return SubscriptionStats(
            type=stats.get("type") if stats["consumers"] else None,
            backlog=int(stats["msgBacklog"]),
            unacknowledged=int(stats["unackedMessages"]),
            consumers=len(stats["consumers"]),
        )

    def unload(self, topic: str) -> None:
        """Have the server let go of a topic; clients connect to it again by themselves."""
        self._call("PUT", f"{_path(topic)}/unload")

    def delete(self, topic: str) -> None:
        """Delete a topic, all its partitions if it has some, whoever is connected to it."""
        which = "/partitions" if self.partitions(topic) else ""
        self._call("DELETE", f"{_path(topic)}{which}?force=true")

    def _call(self, method: str, path: str, body: Any = None, *, timeout: float = _TIMEOUT) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310  # the scheme is the test's own
            f"{self._url}/admin/v2/{path}", data, self._headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self._trust) as answer:  # noqa: S310
                content = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")

            raise AdminError(f"{method} {path}: {error.code} {said[:300]}", error.code) from None
        except OSError as error:
            raise AdminError(f"{method} {path}: {error}") from error

        return _decoded(content)


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return content.decode()


def _path(topic: str) -> str:
    name = topic.removeprefix(_PREFIX)
    full = name if name.count("/") == 2 else f"public/default/{name}"
    namespace, _, local = full.rpartition("/")
    return f"persistent/{namespace}/{quote(local, safe='')}"
