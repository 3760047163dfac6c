"""Pins this distribution to the pystream-core of its own version."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PinnedCore(MetadataHookInterface):
    """Fills in `dependencies`; a source distribution already carries them."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the one dependency to the project's metadata."""
        metadata["dependencies"] = [f"pystream-core=={metadata['version']}"]
