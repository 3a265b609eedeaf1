"""Tokens of an OpenID Connect issuer through a running server: for requests and for commands."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.integration.control.test_oidc import OwnIssuer, file_of
from tests.system.processes import ROOST, Site

pytestmark = pytest.mark.slow


@pytest.fixture
def own() -> Iterator[OwnIssuer]:
    made = OwnIssuer()
    yield made
    made.end()


def test_a_running_server_takes_tokens_of_its_issuer_and_no_others(
    site: Site, own: OwnIssuer, tmp_path: Path
) -> None:
    server = site.serve(oidc=file_of(own, tmp_path))
    now = int(time.time())
    good = own.token(exp=now + 300, iat=now)
    forged = own.token(key=ec.generate_private_key(ec.SECP256R1()), exp=now + 300, iat=now)
    late = own.token(exp=now - 300, iat=now - 600)

    def status(path: str, token: str, method: str = "GET", **more: object) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.request(method, f"{server.url}{path}", headers=headers, **more).status_code

    assert status("/api/v1/vms", good) == 200
    assert status("/api/v1/vms", forged) == 401
    assert status("/api/v1/vms", late) == 401
    assert status("/api/v1/projects", good, "POST", json={"name": "no"}) == 403  # an operator

    told = subprocess.run(
        [ROOST, "vm", "list"],
        env=os.environ | {"ROOST_SERVER": server.url, "ROOST_TOKEN": good},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == "no VMs"
