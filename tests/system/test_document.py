"""Schemathesis against a live control plane with hosts and VMs: it answers as its document says."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from roost.wire.bodies import CreateToken
from tests.api.test_schemathesis import CONFIG
from tests.system.processes import Site, small

pytestmark = pytest.mark.slow

EXAMPLES = 20 if os.environ.get("ROOST_LONG") else 1
MOST_S = 300


def test_a_live_control_plane_does_what_its_document_says(site: Site) -> None:
    server = site.serve(log_level="warning")
    site.hosts("host", server, count=3, cpu="100000", memory="256TiB", disk="256TiB")
    config = site.folder / "schemathesis.toml"
    config.write_text(CONFIG)
    with site.client(server) as client:
        for at in range(5):
            client.create_vm(small(f"vm-{at}"))
        # Tokens may be deleted as well: a spare one is asked with afterwards.
        token = client.create_token(CreateToken(name="tried", role="admin")).secret
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)),
            *("run", f"{server.url}/api/v1/openapi.json"),
            *("--header", f"Authorization: Bearer {token}"),
            *("--phases", "examples,coverage,fuzzing,stateful"),
            *("--max-examples", str(EXAMPLES), "--seed", "1"),
            *("--suppress-health-check", "all", "--generation-database", "none"),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MOST_S, cwd=site.folder, check=False
        )
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
        kinds = Counter(event.kind for event in client.list_events(limit=1000).events)
        changed = {"vm.delete_asked", "host.cordoned", "project.created", "token.created"}
        assert kinds.keys() >= changed, f"it never got through: {kinds}"
    assert "Traceback" not in server.log(), server.log()[-4000:]
    site.doctor(server)
