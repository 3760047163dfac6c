"""The entry of the command `pystream`, and of `python -m pystream`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say how to install it."""
    try:
        from pystream.cli import cli
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise

        sys.stderr.write('Error: the command line needs typer: pip install "pystream[cli]"\n')
        sys.exit(2)

    cli(prog_name="pystream")


if __name__ == "__main__":
    main()
