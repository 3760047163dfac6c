"""`TLS`: a plain value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pystream.errors import ConfigurationError
from pystream_pulsar import TLS


@pytest.mark.promise("PULSAR-123")
def test_host_names_are_verified() -> None:
    """Host names are verified unless one says otherwise, and no file is looked at yet."""
    assert TLS().verify_hostname
    assert TLS(trust_certs="/nowhere") == TLS(trust_certs="/nowhere")
    assert TLS(trust_certs=Path("/nowhere")).trust_certs == Path("/nowhere")


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"trust_certs": ""}, "TLS(trust_certs=...): give the path of a PEM file, or leave it out"),
    ({"trust_certs": b"pem"}, "TLS(trust_certs=...): give the path of a PEM file, or leave it out"),
    ({"verify_hostname": "no"}, "TLS(verify_hostname='no'): give True or False"),
]
"""Options of a TLS, and the whole text of the refusal."""


@pytest.mark.promise("PULSAR-123")
@pytest.mark.parametrize(("options", "message"), REFUSALS)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    """An option that cannot work is refused at construction."""
    with pytest.raises(ConfigurationError) as refused:
        TLS(**options)

    assert str(refused.value) == message
