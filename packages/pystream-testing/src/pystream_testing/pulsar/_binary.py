"""Where the server's executable is: inside the package `pulsar-lite`, which is not imported for it."""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path

from pystream_testing.pulsar._errors import EmbeddedServerMissing

__all__ = ["find_binary"]

_PACKAGE = "pulsar_lite"


def find_binary() -> Path:
    """The path of the executable.

    Raises:
        EmbeddedServerMissing: The package is not installed, or it has no executable for this platform.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    here = f"{sys.platform} on {platform.machine()}"
    if spec is None or spec.origin is None:
        raise EmbeddedServerMissing(
            'the embedded Pulsar server is not installed: pip install "pystream-testing[pulsar]", or, if '
            f"pulsar-lite has no wheel for this platform ({here}), use a server of your own"
        )

    path = Path(spec.origin).parent / "bin" / ("pulsar-lite.exe" if sys.platform == "win32" else "pulsar-lite")
    if not path.is_file():
        raise EmbeddedServerMissing(
            f"the installed pulsar-lite has no executable for this platform ({here}): use a server of your own"
        )

    return path
