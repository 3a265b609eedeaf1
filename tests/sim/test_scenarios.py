"""Scenarios: what a file may say, what a seed makes of it, and that every shipped one is sound."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import InvalidRequest, NotFound
from roost.sim.campaign.running import Ran, Task, fixed_environment, read_world, run_tasks, shrunk
from roost.sim.campaign.shrinking import shrink
from roost.sim.histories.history import Action, History
from roost.sim.histories.scenarios import (
    FAULT_KINDS,
    find_scenario,
    parse_scenario,
    read_scenario,
    shipped,
)
from roost.sim.histories.workloads import expand
from roost.sim.world import Verdict, run_history

SMALL = """
about: a test
duration: 10m
timers: short
calm: 4m
hosts:
  - {count: 4, cpu: 4, memory: 8GiB, zones: [a, b], racks: 2}
"""


def small(more: str):
    return parse_scenario(SMALL + more, "test.yaml")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("planets: 3", r"test.yaml:8: object contains unknown field `planets`"),
        ("planes: many", r"test.yaml:8: expected `int`, got `str`, at planes"),
        ("maintenance: {from: soon}", r"test.yaml:8: 'soon' is no length of time; write it as 90s"),
        ("calm: 3m", r"test.yaml:8: the field `calm` is there twice"),
        ("faults:\n  kill_agnet: 3", r"test.yaml:.*unknown fault 'kill_agnet'; faults are agent"),
        ("changes: {resze: 3}", r"test.yaml:8: invalid enum value 'resze'"),
        (
            "arrivals:\n  - name: web\n    total: 3\n    batches: 2",
            r"test.yaml:11: object contains unknown field `batches`, at arrivals\[0\]",
        ),
        ("arrivals: [{name: web}]", r"test.yaml:8: arrivals have either per_hour or total"),
        (
            "arrivals: [{name: web, total: 3, sizes: [{memory: 4Gb}]}]",
            r"test.yaml:8: '4Gb' is no amount of bytes; write it as 4GiB",
        ),
        (
            "arrivals: [{name: web, total: 3, zones: [c]}]",
            r"there is no zone 'c'; there is a, b",
        ),
        (
            "arrivals: [{name: web, total: 3, lifetime: {}}]",
            r"test.yaml:8: a lifetime is one of fixed, exponential and lognormal",
        ),
        ("losses: [{at: 1m, for: 1m, rack: c-r0}]", r"there is no rack 'c-r0'; there is a-r0"),
        ("losses: [{at: 1m, for: 1m}]", r"a loss is of a host, of a rack or of a zone"),
        ("maintenance: {hosts: [h9]}", r"there is no host 'h9'; there is h0, h1, h2, h3"),
        ("about: [", r"test.yaml:[0-9]+: "),
    ],
    ids=[
        "field", "type", "time", "twice", "fault", "change", "nested", "no rate", "size", "zone",
        "lifetime", "rack", "loss", "host", "yaml",
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(more: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        small(more)


def test_a_scenario_and_a_seed_make_one_history() -> None:
    scenario = small("arrivals: [{name: web, per_hour: 300, lifetime: {exponential: 3m}}]")
    first, again, other = expand(scenario, 1), expand(scenario, 1), expand(scenario, 2)
    assert first == again
    assert first.actions != other.actions
    assert [action.at for action in first.actions] == sorted(a.at for a in first.actions)
    assert (first.seed, first.hosts, first.length_s, first.calm_s) == (1, 4, 600.0, 240.0)


def test_one_part_of_a_scenario_leaves_the_others_as_they_were() -> None:
    arrivals = "arrivals: [{name: web, per_hour: 300}]\n"
    plain = expand(small(arrivals), 3)
    more = expand(small(arrivals + "changes: {migrate: 30}\nfaults: {cut: 20}"), 3)
    creates = [action for action in more.actions if action.do == "create"]
    assert creates == plain.actions
    assert {"migrate", "cut"} <= {action.do for action in more.actions}


def test_hosts_stand_in_zones_and_racks_in_turn() -> None:
    history = expand(small(""), 0)
    places = [history.host_plan(n) for n in range(history.hosts)]
    assert [(place.zone, place.rack) for place in places] == [
        ("a", "a-r0"), ("b", "b-r0"), ("a", "a-r1"), ("b", "b-r1"),
    ]  # fmt: skip
    assert places[0].memory_gib == 8


def test_a_total_comes_in_batches_that_share_a_size_and_a_group() -> None:
    scenario = small(
        """
arrivals:
  - name: web
    total: 10
    until: 2m
    batch: 3
    zones: [a]
    queue: true
    group: {rule: anti-affinity, scope: rack}
    sizes: [{cpu: 1, memory: 1GiB}, {cpu: 2, memory: 2GiB}]
"""
    )
    actions = expand(scenario, 4).actions
    assert {action.do for action in actions} == {"create_many"}
    assert sorted(len(action.with_["vms"]) for action in actions) == [1, 3, 3, 3]
    groups = [action.with_["group"]["name"] for action in actions]
    assert len(set(groups)) == len(groups)
    assert all(action.at <= 120 and action.with_["zones"] == ["a"] for action in actions)
    names = [name for action in actions for name in action.with_["vms"]]
    assert len(set(names)) == 10


def test_rates_are_per_hour_and_lifetimes_end() -> None:
    scenario = parse_scenario(
        SMALL.replace("10m", "50h")
        + "arrivals: [{name: web, per_hour: 40, lifetime: {exponential: 1h}}]\n"
        + "changes: {stop: 10}\noperators: {early_uncordon: 2}\nfaults: {power_off: 4}",
        "test.yaml",
    )
    counts = Counter(action.do for action in expand(scenario, 5).actions)
    assert 1700 < counts["create"] < 2300
    assert 0.9 < counts["delete"] / counts["create"] < 1.0
    assert 380 < counts["stop"] < 620
    assert 140 < counts["power_off"] < 260
    assert counts["drain"] == counts["uncordon"]


def test_losses_maintenance_and_mistakes_become_actions() -> None:
    scenario = small(
        """
projects: {red: {cpu: 8, vms: 4}}
arrivals: [{name: red, project: red, total: 3, until: 1m}]
losses:
  - {at: 2m, rack: any, for: 1m}
  - {at: 3m, zone: b, for: 1m, how: network}
maintenance: {from: 4m, every: 1m, off: 30s, hosts: [h1, h3]}
operators: {low_quota: 60, wrong_delete: 60}
actions: [{at: 9m, do: backup_database}]
"""
    )
    actions = expand(scenario, 6).actions
    assert actions[0] == Action(0.0, "quota", "red", {"cpu": 8, "vms": 4})
    done = {action.do: action for action in actions}
    assert re.fullmatch("[ab]-r[01]", done["lose_rack"].on)
    assert done["lose_zone"] == Action(180.0, "lose_zone", "b", {"how": "network", "for": 60.0})
    kept = [(a.at, a.on) for a in actions if a.do == "maintain"]
    assert kept == [(240.0, "h1"), (300.0, "h3")]
    assert {"cpu": 2, "vms": 1} in [a.with_ for a in actions if a.do == "quota"]
    again = [a.on for a in actions if a.do == "create"]
    assert len(again) > len(set(again))
    assert done["backup_database"].at == 540.0


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_scenario_can_be_read(name: str) -> None:
    scenario = read_scenario(find_scenario(name))
    assert scenario.about[0].islower() or scenario.about[0].isdigit()
    history = expand(scenario, 0)
    assert history.actions
    assert msgspec.json.decode(msgspec.json.encode(history), type=History) == history
    assert set(scenario.faults) <= set(FAULT_KINDS)


def test_the_quiet_week_has_a_thousand_hosts_and_ten_thousand_vms() -> None:
    scenario = read_scenario(find_scenario("quiet-week"))
    history = expand(scenario, 0)
    created = sum(
        len(a.with_.get("vms", [a.on])) for a in history.actions if a.do.startswith("create")
    )
    assert history.hosts == 1000
    assert created >= 10_000
    assert (history.length_s, history.lazy, scenario.short) == (7 * 86_400.0, True, False)


def test_an_unknown_scenario_is_not_found() -> None:
    with pytest.raises(NotFound, match="no scenario 'noise'; shipped are daily-churn"):
        find_scenario("noise")


def test_a_file_is_a_history_when_it_names_a_seed(tmp_path) -> None:
    history = tmp_path / "history.yaml"
    history.write_text("seed: 4\nhosts: 3\nactions: [{at: 1, do: create, on: vm1}]\n")
    assert read_world(history, None) == History(4, hosts=3, actions=[Action(1.0, "create", "vm1")])
    assert read_world(history, 9).seed == 9
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SMALL)
    assert read_world(scenario, 7) == expand(small(""), 7)


# Running


def run(more: str, seed: int = 1) -> Verdict:
    return run_history(expand(small(more), seed))


def test_a_rack_that_loses_power_comes_back_and_every_law_holds() -> None:
    verdict = run(
        """
arrivals: [{name: web, total: 4, until: 20s, batch: 2, restart: elsewhere, queue: true}]
losses: [{at: 1m, rack: a-r0, for: 1m}, {at: 4m, zone: b, for: 10s, how: network}]
"""
    )
    assert verdict.broken == ""
    assert verdict.coverage["fault.power_off"] == 1
    assert verdict.coverage["fault.cut"] == 2
    assert verdict.coverage["commit.vm.created"] == 4


def test_maintenance_empties_a_host_before_it_is_switched_off() -> None:
    verdict = run(
        """
arrivals: [{name: web, total: 6, until: 10s}]
maintenance: {from: 1m, every: 3m, off: 20s, patience: 2m, hosts: [h0]}
"""
    )
    assert verdict.broken == ""
    assert verdict.coverage["maintenance"] == 1
    assert verdict.coverage["commit.vm.moved"] >= 1
    assert "commit.vm.crashed" not in verdict.coverage


def test_quotas_refuse_and_are_exact() -> None:
    verdict = run(
        """
projects: {red: {cpu: 4, vms: 3}}
arrivals: [{name: red, project: red, per_hour: 240, lifetime: {exponential: 2m}}]
changes: {resize: 60}
operators: {low_quota: 30}
"""
    )
    assert verdict.broken == ""
    assert verdict.coverage["refused"] > 3
    assert verdict.coverage["commit.project.quota"] >= 2


def test_a_campaign_counts_worlds_by_scenario(tmp_path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(SMALL.replace("10m", "30s") + "arrivals: [{name: web, total: 2}]\n")
    heard: list[int] = []
    tasks = [Task(seed, str(path)) for seed in range(2)]
    tally = run_tasks(tasks, jobs=1, told=lambda tally: heard.append(tally.worlds))
    assert (tally.worlds, tally.broken, tally.scenarios["tiny"].worlds) == (2, [], 2)
    assert heard[-1] == 2
    assert tally.cpu_s > 0
    assert tally.scenarios["tiny"].events == tally.events


def test_the_worker_answers_each_task_with_its_verdict() -> None:
    task = Task(3, actions=3, seconds=5.0)
    done = subprocess.run(
        [sys.executable, "-m", "roost.sim.campaign.worker"],
        input=msgspec.json.encode(task) + b"\n",
        env=fixed_environment(),
        capture_output=True,
        check=True,
    )
    ran = msgspec.json.decode(done.stdout, type=Ran)
    assert (ran.task, ran.verdict.seed, ran.verdict.broken) == (task, 3, "")
    assert Path(task.name).name == "seed-3"


# Shrinking


def test_shrinking_thins_requests_and_ends_early() -> None:
    actions = [Action(1.0, "create_many", "", {"vms": [f"vm{n}" for n in range(9)], "cpu": 1})]
    history = History(1, hosts=4, planes=2, length_s=600.0, actions=actions)

    def fails(tried: History) -> bool:
        names = [name for action in tried.actions for name in action.with_["vms"]]
        return {"vm3", "vm7"} <= set(names)

    short = shrink(history, fails)
    assert short.actions[0].with_["vms"] == ["vm3", "vm7"]
    assert (short.length_s, short.hosts, short.planes) == (0.0, 2, 1)


def test_a_smaller_world_ignores_what_was_meant_for_machines_that_it_has_not() -> None:
    actions = [
        Action(0.0, "create", "vm1"),
        Action(1.0, "power_off", "h7", {"for": 5.0}),
        Action(2.0, "kill_plane", "plane5", {"for": 5.0}),
    ]
    history = History(1, hosts=2, planes=1, calm_s=60.0, rates={"h9": 1.1}, actions=actions)
    assert run_history(history).broken == ""
    assert shrunk(history, "some law", most_s=0.0) == history
