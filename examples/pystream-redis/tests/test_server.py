"""The tests' own rule: a server that is not installed is never passed over in silence."""

from __future__ import annotations

import pytest
import server


@pytest.mark.promise("SDK-160")
def test_missing_server_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a `redis-server` the tests fail where `CI` is set, and are skipped elsewhere, with the reason."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install redis-server"):
        server.binary()

    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="apt-get install redis-server"):
        server.binary()
