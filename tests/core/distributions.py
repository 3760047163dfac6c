"""Real distributions for tests of entry points: modules and `.dist-info` folders on the path."""

from __future__ import annotations

import itertools
from pathlib import Path
from textwrap import dedent

_numbers = itertools.count()


class Distributions:
    """Distributions installed into one folder that stands on `sys.path`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, source: str | None, group: str, entries: dict[str, str]) -> str:
        """Install a distribution with one module and some entry points; returns the module's name.

        Args:
            name: The distribution's name; its version is 1.2.
            source: The module's text, or none for a module that is not there.
            group: The entry-point group.
            entries: An entry point's name to its object reference; `{module}` stands for the module.
        """
        module = f"dist_module_{next(_numbers)}"
        if source is not None:
            (self.folder / f"{module}.py").write_text(dedent(source))

        info = self.folder / f"{name.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        lines = [f"{entry} = {value.replace('{module}', module)}" for entry, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join((f"[{group}]", *lines, "")))
        return module
