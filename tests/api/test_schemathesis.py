"""Schemathesis over the OpenAPI document: no undocumented status, no body that is not as described.

By default the server is one of our own around a small fleet. ROOST_SERVER and ROOST_TOKEN
(an admin's) point it at another one; it creates, changes and deletes things there. Nouns of the
API take turns, a tenth of them by the commit; tests/system/test_document.py always has the whole.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.api.conftest import Site
from tests.api.planes import token
from tests.api.table import ROUTES
from tests.turns import in_turn

#: 422 to data that the schema allows: amounts are text with a unit, strategies have names, and so
#: on. 413, 414: the server takes only so much. 503 is documented wherever a VM may
#: find no room.
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "4xx", "503"]
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "413", "414", "422", "503"]
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "409", "413", "414", "422", "503"]
"""
#: About 2,000 requests, 15 seconds of one core; a machine that is busy may take longer.
EXAMPLES, MOST_S = 5, 300


class Target(NamedTuple):
    """A server to try."""

    url: str
    token: str


@pytest.fixture
def target(site: Site) -> Target:
    """Return the server to try."""
    if "ROOST_SERVER" in os.environ:
        return Target(os.environ["ROOST_SERVER"], os.environ["ROOST_TOKEN"])
    return Target(site.url, token("admin"))


def _noun(path: str) -> str:
    return re.split("[/:]", path.removeprefix("/api/v1"))[1]


def nouns_in_turn() -> str:
    """Return the expression of the paths whose turn it is."""
    nouns = sorted({_noun(route.path) for route in ROUTES})
    # What is made and deleted has links to follow; the stateful phase refuses to run without any.
    made = {_noun(route.path) for route in ROUTES if route.method == "POST"}
    deleted = {_noun(route.path) for route in ROUTES if route.method == "DELETE"}
    linked = in_turn(sorted(made & deleted), 1)
    chosen = sorted({*in_turn(nouns, -(-len(nouns) // 10)), *linked})
    return f"^(/api/v1)?/({'|'.join(map(re.escape, chosen))})([/:]|$)"


@pytest.mark.slow
def test_the_server_does_what_its_document_says(target: Target, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)),
        *("run", f"{target.url}/api/v1/openapi.json"),
        *("--header", f"Authorization: Bearer {target.token}"),
        *("--include-path-regex", nouns_in_turn()),
        *("--phases", "examples,coverage,fuzzing,stateful"),
        *("--max-examples", str(EXAMPLES), "--seed", "1"),
        *("--suppress-health-check", "all", "--generation-database", "none"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=MOST_S, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
