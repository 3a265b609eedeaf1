"""The commands that stand beside fixes are taken by the parser, and do what the fixes say."""

import re
import shlex

import pytest

from roost.wire.agentlink import TaintInfo
from roost.wire.bodies import ConstraintsBody, GroupBody, LabelTermBody
from tests.integration.control.rig import Rig, run
from tests.integration.control.typed import Type, typing
from tests.unit.cli.test_named_commands import refused


def tries(output: str) -> list[str]:
    """Return the commands that an output tells to try, each of them one to the real parser."""
    found = re.findall(r"^try: +roost (.*)$", output, re.MULTILINE)
    for line in found:
        assert refused(line) is None, line
    return found


async def carried_out(rig: Rig, type_: Type, line: str) -> str | None:
    """Type a command, and return where the VM that waits is then."""
    await type_(*shlex.split(line))
    await rig.settle()
    await rig.pass_by(10)  # the queue is tried again
    return (await rig.get("waits")).host


@pytest.mark.parametrize("closed", ["cordon", "maintenance", "drain"])
def test_a_host_is_opened_by_the_command_beside_its_fix(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 4, 8)
        async with typing(rig, monkeypatch) as type_:
            words = ("on", "h0") if closed == "maintenance" else ("h0",)
            await type_("host", closed, *words)
            size = ("--cpu", "2", "--memory", "1GiB")
            for asked in (("place", *size), ("explain", *size), ("capacity", *size),
                          ("place", *size, "--count", "2"), ("vm", "create", "b", *size),
                          ("vm", "create", "b", "--dry-run", *size)):  # fmt: skip
                told = await type_(*asked, rc=None)
                assert tries(told.output) == ["host uncordon h0"], asked
            await type_("vm", "create", "waits", *size, "--queue")
            [line] = tries((await type_("vm", "show", "waits")).output)
            assert await carried_out(rig, type_, line) == "h0"

    run(sqlite_url, test)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        ({"constraints": {"zones": ["a"]}}, "vm set waits --project default --no-zone"),
        ({"constraints": {"racks": ["r0"]}}, "vm set waits --project default --no-rack"),
        (
            {"constraints": ConstraintsBody(labels=[LabelTermBody(key="ssd")])},
            "vm set waits --project default --no-host-label",
        ),
        ({"constraints": {"hosts": ["h0"]}}, "vm set waits --project default --unpin"),
        ({"constraints": {"not_hosts": ["h1"]}}, "vm set waits --project default --no-exclude"),
        (
            {"groups": [GroupBody(name="web", rule="affinity")]},
            "vm set waits --project default --group web-",
        ),
    ],
)
def test_a_vm_s_own_rule_is_lifted_by_the_command_beside_its_fix(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, made: dict[str, object], line: str
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 4, 8, zone="a", rack="r0", labels={"ssd": "yes"})
        await rig.running("full", cpu=4, groups=[GroupBody(name="web", rule="affinity")])
        await rig.host("h1", 4, 8)
        await rig.create("waits", cpu=2, on_no_fit="queue", **made)
        async with typing(rig, monkeypatch) as type_:
            for asked in (("vm", "show", "waits"), ("vm", "explain", "waits")):
                # Explaining may name moves of others that would help too, behind that.
                assert tries((await type_(*asked)).output)[:1] == [line], asked
            assert await carried_out(rig, type_, line) == "h1"

    run(sqlite_url, test)


def test_a_taint_is_tolerated_by_the_command_beside_its_fix(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        taint = TaintInfo(key="dedicated", value="db", effect="no-place")
        await rig.host("h0", 4, 8, taints=[taint])
        await rig.create("waits", cpu=2, on_no_fit="queue")
        async with typing(rig, monkeypatch) as type_:
            [line] = tries((await type_("vm", "show", "waits")).output)
            assert line == "vm set waits --project default --tolerate dedicated=db"
            assert await carried_out(rig, type_, line) == "h0"

    run(sqlite_url, test)


def test_nothing_is_told_to_try_where_no_command_does_what_a_fix_says(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 4, 8)
        await rig.running("full", cpu=4)
        async with typing(rig, monkeypatch) as type_:
            told = (await type_("place", "--cpu", "2", "--memory", "1GiB", rc=1)).output
            assert "smallest fix: free 2 cores on h0" in told
            assert tries(told) == []

    run(sqlite_url, test)
