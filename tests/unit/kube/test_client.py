"""What can be said about a cluster before it is asked."""

import asyncio
from pathlib import Path

import pytest

from roost.base.errors import Forbidden, InvalidRequest, NotFound, RoostError, Unavailable
from roost.kube.base.client import load_configuration
from roost.kube.base.failures import AlreadyExists, Gone, TooManyRequests, refused


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"no kubeconfig .*/none"):
        asyncio.run(load_configuration(tmp_path / "none"))


@pytest.mark.parametrize("text", ["a: [", "a: 1", "{current-context: x}"])
def test_one_that_makes_no_sense_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=r"kubeconfig .*/config cannot be used"):
        asyncio.run(load_configuration(path))


def test_without_any_it_says_how_to_get_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Unavailable) as told:
        asyncio.run(load_configuration())
    assert "roost kube up" in (told.value.hint or "")


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(403, "Forbidden", Forbidden), (404, "NotFound", NotFound), (410, "Expired", Gone),
     (409, "AlreadyExists", AlreadyExists), (429, "TooManyRequests", TooManyRequests),
     (422, "Invalid", InvalidRequest), (503, "ServiceUnavailable", Unavailable)],
)  # fmt: skip
def test_an_answer_becomes_the_error_that_says_what_to_do(
    status: int, reason: str, kind: type[RoostError]
) -> None:
    body = b'{"message": "pods \\"x\\" and so on", "reason": "%s"}' % reason.encode()
    error = refused(status, body, "GET /api/v1/pods/x")
    assert type(error) is kind
    assert error.message == 'pods "x" and so on'


def test_an_answer_that_is_not_the_servers_own_names_what_was_asked() -> None:
    error = refused(502, b"<html>bad gateway</html>", "GET /version")
    assert isinstance(error, Unavailable)
    assert error.message.startswith("GET /version: <html>")
