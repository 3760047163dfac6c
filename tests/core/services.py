"""Small services for tests of the command line, most of which cannot be run."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

SERVICES = {
    "billing": """
        from pystream import PyStream

        app = PyStream("billing")
        number = 5

        class site:
            main = app

        def needs(settings, *, strict=False): ...
        def fails(): raise ValueError("no\\n  luck")
        def wrong(): return 5
        def exits(): raise SystemExit
        async def later(): return app
    """,
    "chained": """
        import os

        try:
            os.environ["BILLING_URL"]
        except KeyError as error:
            raise RuntimeError("BILLING_URL is not set") from error
    """,
    "standard": "import json\njson.loads('?')",
    "syntax": "x = 1\ndef broken(:",
    "through": "import syntax",
    "needy": "import absent_module",
    "leaves": "raise SystemExit(3)",
    "stopped": "raise KeyboardInterrupt",
    "told": """
        from pystream import PyStream

        class Told(PyStream):
            def run(self, *, backend="asyncio", shutdown_timeout=None):
                print(self.title, backend, shutdown_timeout)

        app = Told("billing")
        patient = Told("patient", shutdown_timeout=7)

        def make():
            return Told("made")
    """,
    "refused": """
        from pystream.errors import RegistrationError

        try:
            {}["pay"]
        except KeyError as error:
            raise RegistrationError("handler 'pay': workers=0 is not 1 or more") from error
    """,
}
"""A module's name to its text."""


def write_services(folder: Path) -> None:
    """Write each service into the folder."""
    for name, text in SERVICES.items():
        (folder / f"{name}.py").write_text(dedent(text))
