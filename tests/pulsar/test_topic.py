"""`PulsarTopic`: spellings and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystream.errors import ConfigurationError
from pystream_pulsar import PulsarTopic


@pytest.mark.promise("PULSAR-1")
@pytest.mark.parametrize(
    ("given_name", "full_name"),
    [
        ("orders", "persistent://public/default/orders"),
        ("acme/eu/orders", "persistent://acme/eu/orders"),
        ("persistent://acme/eu/orders", "persistent://acme/eu/orders"),
        ("non-persistent://acme/eu/orders", "non-persistent://acme/eu/orders"),
        ("a-b=c:d.e_1/n-1/orders", "persistent://a-b=c:d.e_1/n-1/orders"),
        ("bestellungen-größe!?#%", "persistent://public/default/bestellungen-größe!?#%"),
        ("orders-partition-3", "persistent://public/default/orders-partition-3"),
    ],
)
def test_spellings(given_name: str, full_name: str) -> None:
    """Every spelling of a topic is resolved to its full name."""
    topic = PulsarTopic(given_name)
    assert str(topic) == topic.full_name == full_name
    assert f"{topic.persistence}://{topic.tenant}/{topic.namespace}/{topic.name}" == full_name


@pytest.mark.promise("PULSAR-1")
def test_is_a_value() -> None:
    """Two spellings of one topic are equal, have one hash, and cannot be changed."""
    topic = PulsarTopic("orders")
    assert topic == PulsarTopic("public/default/orders") == PulsarTopic(topic)
    assert len({topic, PulsarTopic("persistent://public/default/orders")}) == 1
    assert topic != PulsarTopic("non-persistent://public/default/orders")
    with pytest.raises(AttributeError):
        topic.name = "other"  # type: ignore[misc]  # that is the point


REFUSALS: list[tuple[str, str]] = [
    ("", "the local name is empty"),
    ("a/b", "write 'name', 'tenant/namespace/name' or a full name; a local name holds no '/'"),
    ("a/b/c/d", "write 'name', 'tenant/namespace/name' or a full name; a local name holds no '/'"),
    ("/ns/orders", "the tenant is empty"),
    ("acme//orders", "the namespace is empty"),
    ("acme/eu/", "the local name is empty"),
    ("ac me/eu/orders", "the tenant 'ac me' may hold only ASCII letters, digits and any of _ - = : ."),
    ("acme/é/orders", "the namespace 'é' may hold only ASCII letters, digits and any of _ - = : ."),
    ("or ders", "the local name holds ' '; it may hold no whitespace or control character"),
    ("or\x00ders", "the local name holds '\\x00'; it may hold no whitespace or control character"),
    ("kafka://a/b/c", "'kafka' is no kind of topic; write 'persistent://' or 'non-persistent://'"),
    ("persistent://orders", "a full name is persistent://tenant/namespace/name"),
    ("persistent://t/c/n/orders", "a full name is persistent://tenant/namespace/name"),
]
"""What is no topic, and the reason that ends the refusal."""


@pytest.mark.promise("PULSAR-1")
@pytest.mark.parametrize(("name", "why"), REFUSALS)
def test_refusals(name: str, why: str) -> None:
    """What is no topic is refused before any I/O, saying which part and why."""
    with pytest.raises(ConfigurationError) as caught:
        PulsarTopic(name)

    assert str(caught.value) == f"{name!r} is no name of a Pulsar topic: {why}"


@pytest.mark.promise("PULSAR-1")
@given(st.text())
def test_any_text(name: str) -> None:
    """Any text is a topic whose full name means the same topic, or is refused with an error of ours."""
    try:
        topic = PulsarTopic(name)
    except ConfigurationError:
        return

    assert PulsarTopic(topic.full_name) == topic
    assert topic.full_name.endswith(topic.name)
