"""Metrics that people are woken by: hosts, waiting VMs, leases; and the alert rules on them."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.integration.control.rig import Rig, run
from tests.prometheus import find_prometheus

DEPLOYED = Path(__file__).parents[3] / "deploy" / "prometheus"


def told(rig: Rig) -> dict[str, float]:
    """Return every sample of a plane."""
    text = rig.plane.metrics_text().decode()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_a_silent_host_and_a_waiting_vm_are_in_the_metrics(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.host("h1")
        h2 = await rig.host("h2")
        await rig.create("waits", cpu=64, on_no_fit="queue")
        await rig.pass_by(20)
        h2.disconnect()
        await rig.pass_by(100)
        found = told(rig)
        assert found['roost_host_up{host="h1"}'] == 1
        assert found['roost_host_up{host="h2"}'] == 0
        assert found['roost_hosts{admin="open",health="offline"}'] == 1
        assert found['roost_hosts{admin="open",health="online"}'] == 1
        assert found["roost_queue_oldest_seconds"] >= 100
        assert found["process_resident_memory_bytes"] > 0
        assert found["roost_leases_held"] > 0

    run(database_url, story)


def test_every_metric_of_an_alert_is_one_that_a_server_tells(database_url: str) -> None:
    rules = yaml.safe_load((DEPLOYED / "roost.rules.yml").read_text())["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(r"\broost_\w+", rule["expr"])}
    assert len(asked) > 8

    async def story(rig: Rig) -> None:
        await rig.host("h1")
        await rig.running("vm")
        names = {name.partition("{")[0] for name in told(rig)}
        assert asked <= names

    run(database_url, story)


@pytest.mark.parametrize("arguments", [("check", "rules", "roost.rules.yml"),
                                       ("test", "rules", "roost.rules.test.yml")])  # fmt: skip
def test_promtool_accepts_the_alert_rules(arguments: tuple[str, ...]) -> None:
    program = find_prometheus().with_name("promtool")
    done = subprocess.run(
        [program, *arguments], cwd=DEPLOYED, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
