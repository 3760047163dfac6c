"""`broker(url)`: which plugin makes it, and one sentence for whatever goes wrong."""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import EntryPoint
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pystream.errors import ConfigurationError, PluginError
from pystream.plugins import broker

from tests.core.distributions import Distributions

GROUP = "pystream.brokers"
GOOD = """
    from pystream.errors import ConfigurationError

    class Fake:
        def __init__(self, url): self.url = url
        def connect(self, clock): ...
        def default_source(self, name): ...
        def describe(self): return "fake"

    def echo(url): raise ValueError(f"cannot parse {url}")
    def refuse(url): raise ConfigurationError("the password s3cr%40et is too short for bob")
    def decoded(url): raise ValueError("s3cr@et")
    def none(url): return None
    number = 5
"""


@pytest.fixture
def distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Distributions:
    """An empty folder on the path to install distributions into."""
    monkeypatch.syspath_prepend(tmp_path)
    return Distributions(tmp_path)


@pytest.mark.promise("SDK-5")
@pytest.mark.parametrize("url", ["fake://host:1/x?y=1", "FAKE://host"])
def test_scheme_chooses_the_entry_point(distributions: Distributions, url: str) -> None:
    """The entry point named after the scheme, whatever its case, gets the URL as it was given."""
    module = distributions.install("dist-fake", GOOD, GROUP, {"fake": "{module}:Fake"})

    made = broker(url)

    assert isinstance(made, sys.modules[module].Fake)
    assert vars(made) == {"url": url}


@pytest.mark.promise("SDK-5")
def test_only_the_asked_broker_is_imported(distributions: Distributions) -> None:
    """A broken broker plugin that nobody asks for disturbs nobody."""
    broken = distributions.install("dist-broken", "raise RuntimeError", GROUP, {"broken": "{module}:Fake"})
    distributions.install("dist-fake", GOOD, GROUP, {"fake": "{module}:Fake"})

    broker("fake://")

    assert broken not in sys.modules


@pytest.mark.promise("SDK-6")
@pytest.mark.parametrize("url", ["", "host:6650", "://host", "bob:s3cret@host", None, "pulsar:/host"])
def test_url_without_a_scheme_is_refused(distributions: Distributions, url: str) -> None:
    """The refusal shows the form of a URL and the known schemes, and not what was given."""
    distributions.install("dist-fake", GOOD, GROUP, {"fake": "{module}:Fake"})

    with pytest.raises(ConfigurationError, match=r"^a broker URL looks like scheme://address; known schemes: ") as info:
        broker(url)

    assert "fake://" in str(info.value)
    assert "s3cret" not in str(info.value)


@pytest.mark.promise("SDK-6")
def test_unknown_scheme_lists_the_known_ones(distributions: Distributions) -> None:
    """An unknown scheme is refused with the known ones, and without the address."""
    distributions.install("dist-fake", GOOD, GROUP, {"fake": "{module}:Fake"})

    with pytest.raises(ConfigurationError) as refusal:
        broker("kafka://bob:s3cret@host")

    text = str(refusal.value)
    assert text.startswith("no installed broker knows the URL scheme 'kafka'; known schemes: fake://, memory://")
    assert "bob" not in text
    assert "s3cret" not in text


@pytest.mark.promise("SDK-6")
@pytest.mark.parametrize("scheme", ["pulsar", "pulsar+ssl"])
def test_missing_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """A scheme of ours without its distribution names the extra that brings it."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    with pytest.raises(ConfigurationError) as refusal:
        broker(f"{scheme}://host")

    assert str(refusal.value) == (
        f"no installed broker knows the URL scheme '{scheme}'; known schemes: none; "
        'it comes with: pip install "pystream[pulsar]"'
    )


@pytest.mark.promise("SDK-6")
@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import absent_module", "ModuleNotFoundError: No module named 'absent_module'"),
        ("raise SystemExit", "SystemExit"),
        ("def broken(:", "SyntaxError: "),
    ],
)
def test_broker_that_cannot_be_imported(distributions: Distributions, source: str, cause: str) -> None:
    """An import failure names the entry point, the distribution and the cause in one sentence."""
    module = distributions.install("dist-fake", source, GROUP, {"fake": "{module}:Fake"})

    with pytest.raises(PluginError) as refusal:
        broker("fake://bob:s3cret@host")

    assert str(refusal.value).startswith(
        f"the entry point 'fake = {module}:Fake' (pystream.brokers) of dist-fake 1.2 cannot be imported: {cause}"
    )
    assert "s3cret" not in str(refusal.value)


@pytest.mark.promise("SDK-6")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", "is of type int, not a function from URL to broker"),
        ("none", "made a NoneType, which is not a Broker"),
    ],
)
def test_entry_point_that_gives_no_broker(distributions: Distributions, name: str, message: str) -> None:
    """An entry point that is no function, or whose function makes no broker, is named."""
    module = distributions.install("dist-fake", GOOD, GROUP, {"fake": f"{{module}}:{name}"})

    with pytest.raises(PluginError) as refusal:
        broker("fake://host")

    assert str(refusal.value) == (
        f"the entry point 'fake = {module}:{name}' (pystream.brokers) of dist-fake 1.2 {message}"
    )


@pytest.mark.promise("SDK-7")
@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("echo", PluginError, "broker URL 'fake://***@host:1' was refused: ValueError: cannot parse fake://***@host:1"),
        (
            "refuse",
            ConfigurationError,
            "broker URL 'fake://***@host:1' was refused: the password *** is too short for ***",
        ),
        ("decoded", PluginError, "broker URL 'fake://***@host:1' was refused: ValueError: ***"),
    ],
)
def test_credentials_of_the_url_are_never_shown(
    distributions: Distributions, name: str, kind: type[Exception], message: str
) -> None:
    """A factory that raises is reported without user, password and query, in message and traceback."""
    distributions.install("dist-fake", GOOD, GROUP, {"fake": f"{{module}}:{name}"})

    url = "fake://bob:s3cr%40et@host:1/path?token=t0ken"

    with pytest.raises(kind) as refusal:
        broker(url)

    assert type(refusal.value) is kind
    assert str(refusal.value) == message
    shown = "".join(traceback.format_exception(refusal.value))
    assert not any(secret in shown for secret in ("bob", "s3cr", "t0ken"))
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None


PARTS = st.text("KQXZ0189%:@/?#~", min_size=4, max_size=12).filter(lambda part: sum(map(str.isalnum, part)) > 3)


@pytest.mark.promise("SDK-7")
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    user=PARTS.filter(lambda user: ":" not in user), password=PARTS, path=st.sampled_from(["", "/p", "/p@q", "?a=b@c"])
)
def test_no_password_shows_whatever_it_is_made_of(
    distributions: Distributions, monkeypatch: pytest.MonkeyPatch, user: str, password: str, path: str
) -> None:
    """Neither user nor password of any URL shows, however its broker words the refusal."""

    def refuse(url: str) -> None:
        raise ValueError(f"bad {url}, {password}, {user}, {unquote(password)}, {unquote(user)}")

    if not (distributions.folder / "dist_fake-1.2.dist-info").exists():
        distributions.install("dist-fake", "refuse = None", GROUP, {"fake": "{module}:refuse"})

    monkeypatch.setattr(EntryPoint, "load", lambda _: refuse)
    with pytest.raises(PluginError) as refusal:
        broker(f"fake://{user}:{password}@host:1{path}")

    secrets = {user, password, unquote(user), unquote(password)}
    assert not [secret for secret in secrets if secret in str(refusal.value)]


@pytest.mark.promise("SDK-7")
def test_factory_failure_without_credentials_keeps_its_cause(distributions: Distributions) -> None:
    """A refused URL without user info is shown with its address, and the cause is chained."""
    distributions.install("dist-fake", GOOD, GROUP, {"fake": "{module}:echo"})

    with pytest.raises(PluginError) as refusal:
        broker("fake://host:1")

    assert str(refusal.value) == "broker URL 'fake://host:1' was refused: ValueError: cannot parse fake://host:1"
    assert isinstance(refusal.value.__cause__, ValueError)


@pytest.mark.promise("SDK-6")
def test_two_brokers_of_one_scheme_are_refused(distributions: Distributions) -> None:
    """Two distributions that register one scheme are both named."""
    distributions.install("dist-one", GOOD, GROUP, {"fake": "{module}:Fake"})
    distributions.install("dist-two", GOOD, GROUP, {"fake": "{module}:Fake"})

    with pytest.raises(PluginError, match=r"^dist-\w+ 1\.2 and dist-\w+ 1\.2 both register 'fake'"):
        broker("fake://host")
