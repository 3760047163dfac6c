"""`TLS`: how a broker knows the server it speaks to."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pystream.errors import ConfigurationError

__all__ = ["TLS"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """Encryption, and whose certificates are trusted; for `pulsar+ssl://`. A plain value: nothing is read yet.

    Args:
        trust_certs: The path of a PEM file with the certificates of the authorities that are
            trusted. None: those of the system, or certifi's where Python knows of none.
        verify_hostname: Whether the certificate must be for the host in the URL. Without it
            anyone whose certificate the same authority has signed can pose as the server.

    Raises:
        ConfigurationError: An argument cannot work.
    """

    trust_certs: str | os.PathLike[str] | None = None
    verify_hostname: bool = True

    def __post_init__(self) -> None:
        path = self.trust_certs
        if path is not None and (not isinstance(path, str | os.PathLike) or not os.fspath(path)):
            raise ConfigurationError("TLS(trust_certs=...): give the path of a PEM file, or leave it out")

        if not isinstance(self.verify_hostname, bool):
            raise ConfigurationError(f"TLS(verify_hostname={self.verify_hostname!r}): give True or False")
