"""A resize that does not fit is an ordinary refusal with numbers, in the API and as a command."""

import json

import pytest
from typer.testing import CliRunner

from roost.cli.main import app
from tests.api.conftest import Site
from tests.api.planes import token


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_resize_that_does_not_fit_says_what_is_short(
    site: Site, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.setenv("ROOST_SERVER", site.url)
    monkeypatch.setenv("ROOST_TOKEN", token("operator"))
    body = {"name": f"app-{output}", "project": "p2", "demand": {"cpu": 1, "memory": "1GiB"}}
    assert site.ask("POST", "/api/v1/vms", json=body).status_code == 201
    site.settle()
    words = ["vm", "resize", f"app-{output}", "--project", "p2", "--memory", "2TiB", "-o", output]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 6, result.output
    assert not isinstance(result.exception, ValueError)  # no traceback of a body it cannot read
    if output == "json":
        error = json.loads(result.stdout)["error"]
        assert error["code"] == "insufficient_resources"
        assert error["details"]
        assert error["details"]["rejection"]["fixes"] == []  # nor would an empty host be enough
    else:
        assert "is too small for its new size" in result.output
        assert "smallest fix" not in result.output
        assert "TiB" in result.output or "GiB" in result.output
        assert "memory" in result.output
