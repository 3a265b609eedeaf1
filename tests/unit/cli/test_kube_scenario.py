"""`roost kube scenario`: what is listed and checked without a cluster, and how a report reads."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from roost.cli.kube import report
from roost.cli.main import run
from roost.kube.scenarios.reports import (
    Evictions,
    Judgement,
    Move,
    NodeState,
    Place,
    Report,
    Return,
)


def test_shipped_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kube", "scenario", "list"]) == 0
    assert "heat-and-chase" in capsys.readouterr().out
    assert run(["kube", "scenario", "list", "-o", "json"]) == 0
    names = [each["name"] for each in json.loads(capsys.readouterr().out)["scenarios"]]
    assert "migration-elsewhere" in names


def test_a_scenario_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kube", "scenario", "check", "heat-and-chase", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["nodes"], told["vms"], told["descheduler"]) == (5, 20, True)
    path = tmp_path / "x.yaml"
    path.write_text("about: x\nvms:\n  - name: a\n    cpus: 3\n")
    assert run(["kube", "scenario", "check", str(path)]) == 2
    assert f"{path}:4: object contains unknown field `cpus`" in capsys.readouterr().err
    assert run(["kube", "scenario", "run", "nothing"]) == 3
    assert "shipped are" in capsys.readouterr().err


def test_a_report_tells_where_each_vm_went() -> None:
    found = Report(
        scenario="small", about="A test.", seed=3, version="v1.36.3", placed_s=1.5, seconds=9.0,
        vms=[
            Place(vm="a", first="n-1", node="n-2", phase="Running", moves=1),
            Place(vm="b", first="", node="", phase="Scheduling", reason="Insufficient memory"),
        ],
        nodes=[NodeState(name="n-1", zone="z"), NodeState(name="n-2", zone="z", vms=1, cpu=0.95)],
        moves=[
            Move(vm="a", number=1, cause="request", source="n-1", wanted="n-3", actual="n-2",
                 phase="Succeeded", seconds=1.5, rounds=3, copied_bytes=2**30, downtime_ms=120.0),
            Move(vm="b", number=1, cause="eviction", source="n-1", phase="Failed", reason="full"),
        ],
        evictions=Evictions(asked=5, converted=2, refused=3),
        returns=[Return(vm="a", node="n-1", away_s=21.0)],
        judgements=[Judgement(expected="pending: 0", found="1", met=False)],
        notes=["something"],
    )  # fmt: skip
    console = Console(width=140, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(report.report(found))
    text = captured.get()
    for words in (
        "a (from n-1)", "Insufficient memory", "n-3", "120 ms", "stayed", "b stayed: full",
        "evictions asked for: 5; 2 became migrations, 3 refused", "the soonest after 21.0 s",
        "NO  pending: 0  (1)", "note: something", "not even at the end",
    ):  # fmt: skip
        assert words in text, text
