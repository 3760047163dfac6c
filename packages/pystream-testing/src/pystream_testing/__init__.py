"""Tools for testing pystream services; `pystream_testing.pulsar` has a real server to test against."""

from __future__ import annotations

__all__: list[str] = []
