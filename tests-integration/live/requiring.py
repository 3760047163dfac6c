"""Where live tests are required, a test that is skipped has failed."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from live.choice import required

__all__ = ["skips_fail"]


@pytest.hookimpl(wrapper=True)
def skips_fail() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The hook `pytest_runtest_makereport`: with PYSTREAM_REQUIRE_LIVE=1 a skip becomes a failure."""
    report = yield
    if required(os.environ) and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"PYSTREAM_REQUIRE_LIVE forbids skips: {reason}"

    return report
