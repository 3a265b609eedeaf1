"""A real Prometheus scrapes a real control plane, and HostDown fires when a host dies."""

import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml

from tests.prometheus import find_prometheus, wait_until_ready
from tests.system.processes import Site, eventually, free_port

pytestmark = pytest.mark.slow

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "roost.rules.yml"


def test_host_down_fires_when_a_host_dies(site: Site, tmp_path: Path) -> None:
    program = find_prometheus()
    server = site.serve(heartbeat_s=0.5, suspect_s=1.5, offline_s=3)
    site.hosts("alive", server)
    doomed = site.hosts("doomed", server)
    rules = yaml.safe_load(RULES.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "0s"  # the waits are promtool's to test
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    scraped = {"job_name": "roost", "static_configs": [{"targets": [server.url[7:]]}]}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(tmp_path / "rules.yml")],
        "scrape_configs": [scraped],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [program, f"--config.file={tmp_path / 'prometheus.yml'}",
         f"--storage.tsdb.path={tmp_path / 'tsdb'}", f"--web.listen-address={address}",
         "--log.level=error"],
    )  # fmt: skip
    try:
        wait_until_ready(f"http://{address}/-/ready")

        def up() -> set[str]:
            asked = {"query": "roost_host_up == 1"}
            found = httpx.get(f"http://{address}/api/v1/query", params=asked).json()
            return {each["metric"]["host"] for each in found["data"]["result"]}

        def firing() -> set[tuple[str, str]]:
            found = httpx.get(f"http://{address}/api/v1/alerts").json()["data"]["alerts"]
            return {(each["labels"]["alertname"], each["labels"].get("host", "")) for each in found}

        eventually("both hosts are scraped", lambda: up() == {"alive", "doomed"})
        assert ("HostDown", "doomed") not in firing()
        doomed.kill()
        eventually("HostDown fires", lambda: ("HostDown", "doomed") in firing())
        assert ("HostDown", "alive") not in firing()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
