"""`roost plan create`, as an operator types it."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from roost.model.series import Reading, Subject
from roost.wire.plans import ListPlans
from roost.wire.topology import ApplyTopology, LinkBody, NodeBody
from tests.integration.control.rig import OPERATOR, Rig
from tests.integration.control.test_maintenance_commands import says, typed

DRAIN = ("plan", "create", "--goal", "drain", "--host", "a")


def test_a_dry_run_writes_its_report_and_keeps_nothing(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def test(rig: Rig) -> None:
        file = tmp_path / "plan.html"
        told = await says(rig, *DRAIN, "--dry-run", "--html", str(file))
        assert f"the report is in {file}" in told
        text = file.read_text()
        assert "Plan (dry run): drain" in text
        assert all(f"vm-{number}" in text for number in range(6))
        assert (await rig.plane.plans.list(ListPlans())).plans == []
        await says(rig, *DRAIN, "--html", str(file))
        [kept] = (await rig.plane.plans.list(ListPlans())).plans
        assert f"Plan {kept.id}: drain" in file.read_text()
        drawn = tmp_path / "plan.svg"
        await says(rig, "plan", "show", kept.id, "--html", str(drawn))
        picture = ElementTree.parse(drawn).getroot()
        assert picture.tag == "{http://www.w3.org/2000/svg}svg"
        words = " ".join(picture.itertext())
        assert all(f"vm-{number}: a" in words for number in range(6))

    typed(sqlite_url, monkeypatch, test)


def test_a_plan_keeps_to_the_moves_over_one_link_that_it_is_told(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        nodes = [NodeBody(id="s"), NodeBody(id="t")]
        nodes += [NodeBody(id=name, type="host") for name in "abc"]
        ends = [("a", "s"), ("s", "t"), ("b", "t"), ("c", "t")]
        links = [LinkBody(source=a, dest=b, bandwidth=1e4, latency=0.1) for a, b in ends]
        await rig.plane.topology.apply(ApplyTopology(nodes=nodes, links=links), OPERATOR)
        await rig.hear()
        waves = {}
        for most in ("1", "3", "6"):
            await says(rig, *DRAIN, "--per-host", "6", "--per-link", most)
            waves[most] = (await rig.plane.plans.list(ListPlans())).plans[0].waves
        # All leave by the link between the switches.
        assert waves == {"1": 6, "3": 2, "6": 1}

    typed(sqlite_url, monkeypatch, test)


def test_what_is_foreseen_of_vms_that_write_too_fast_is_shown_and_reported(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def test(rig: Rig) -> None:
        now, first = rig.clock.wall_ms(), await rig.get("vm-0")
        reading = Reading(Subject("vm", first.id), now - 1, {"dirty_bytes_per_s": 1e9})
        await rig.series.put([reading], now)
        file = tmp_path / "plan.html"
        told = await says(rig, *DRAIN, "--not-converging", "post_copy", "--html", str(file))
        assert "1 VMs write faster than they can be sent: post-copy" in told
        assert "s, post-copy" in told
        text = file.read_text()
        assert "<td>post-copy</td>" in text
        assert "<td>converges, 100% sure</td>" in text
        told = await says(rig, *DRAIN, "--not-converging", "refuse", "--dry-run")
        assert "vm-0 cannot leave: it writes 953.7 MiB a second" in told
        wrong = await says(rig, *DRAIN, "--not-converging", "wait", code=2)
        assert "auto_converge, post_copy, refuse" in wrong

    typed(sqlite_url, monkeypatch, test)
