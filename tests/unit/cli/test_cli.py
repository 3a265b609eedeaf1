"""The commands, as a person types them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from roost.cli.main import app, run
from roost.wire.text import fleetfile

FLEET = """\
defaults cpu=16 memory=64GiB disk=1TiB
hosts a[1-2] zone=a labels=tier=gold
host b1 zone=b
host b2 zone=b admin=cordoned
host c1 zone=c health=offline
group web anti-affinity host
vm web-1 on a1 cpu=8 memory=24GiB disk=100GiB group=web
vm db-1 on b1 cpu=12 memory=60GiB disk=500GiB
"""
#: Every open host lacks memory; b2 has room but is cordoned.
FULL = """\
defaults cpu=16 memory=32GiB disk=1TiB
hosts h[1-3]
host h4 admin=cordoned
vms v[1-3] on h[1-3] cpu=4 memory=20GiB
"""


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    path = tmp_path / "my.fleet"
    path.write_text(FLEET)
    return str(path)


@pytest.fixture
def full(tmp_path: Path) -> str:
    path = tmp_path / "full.fleet"
    path.write_text(FULL)
    return str(path)


def roost(*arguments: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin, env=env)


def answer(*arguments: str, code: int = 0, env: dict[str, str] | None = None) -> Any:
    result = roost(*arguments, "-o", "json", env=env)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_place_names_the_host_and_the_runners_up(fleet: str) -> None:
    result = roost("place", "--fleet", fleet, "--name", "api-1", "--cpu", "2", "--memory", "4GiB")
    assert result.exit_code == 0, result.output
    assert "api-1 goes to a2" in result.stdout
    assert "least_loaded" in result.stdout
    assert "b1" not in result.stdout.split("next")[0]


def test_place_as_json(fleet: str) -> None:
    found = answer("place", "--fleet", fleet, "--cpu", "2", "--memory", "4GiB", "--runners-up", "1")
    assert (found["answer"], found["vm"], found["host"]) == ("placement", "vm", "a2")
    assert [runner["host"] for runner in found["runners_up"]] == ["a1"]


def test_strategy_option_wins_over_the_environment(fleet: str) -> None:
    size = ("--cpu", "2", "--memory", "4GiB")
    env = {"SCHEDULING_STRATEGY": "best_fit"}
    assert answer("place", "--fleet", fleet, *size, env=env)["strategy"] == "best_fit"
    given = answer("place", "--fleet", fleet, *size, "--strategy", "first_fit", env=env)
    assert given["strategy"] == "first_fit"


def test_round_robin_goes_on_after_the_cursor(fleet: str) -> None:
    size = ("--cpu", "1", "--memory", "1GiB", "--strategy", "round_robin")
    first = answer("place", "--fleet", fleet, *size)
    second = answer("place", "--fleet", fleet, *size, "--cursor", str(first["cursor"]))
    assert (first["host"], second["host"]) == ("a1", "a2")


def test_constraint_options_are_the_words_of_the_fleet_file(fleet: str) -> None:
    size = ("--cpu", "1", "--memory", "1GiB")
    found = answer("place", "--fleet", fleet, *size, "--zone", "b", "--zone", "c")
    assert found["host"] == "b1"
    found = answer("place", "--fleet", fleet, *size, "--label", "tier in gold", "--group", "web")
    assert found["host"] == "a2"
    found = answer("place", "--fleet", fleet, *size, "--exclude", "a1,a2")
    assert found["host"] == "b1"


def test_a_rejection_is_an_answer_with_exit_code_one(full: str) -> None:
    found = answer("place", "--fleet", full, "--cpu", "4", "--memory", "16GiB", code=1)
    assert found["answer"] == "rejection"
    assert found["code"] == "insufficient_resources"
    assert found["nearest_miss"]["hosts"] == 3
    assert found["fixes"][0]["kind"] == "uncordon"


def test_no_host_online_is_no_available_agents(tmp_path: Path) -> None:
    path = tmp_path / "dark.fleet"
    path.write_text("host h1 cpu=8 memory=8GiB health=offline\n")
    found = answer("place", "--fleet", str(path), "--cpu", "1", "--memory", "1GiB", code=1)
    assert found["code"] == "no_available_agents"


def test_count_places_one_by_one(full: str) -> None:
    found = answer("place", "--fleet", full, "--cpu", "4", "--memory", "12GiB", "--count", "3")
    assert (found["asked"], found["placed"]) == (3, 3)
    assert [each["vm"] for each in found["answers"]] == ["vm-1", "vm-2", "vm-3"]
    size = ("--cpu", "4", "--memory", "12GiB")
    found = answer("place", "--fleet", full, *size, "--count", "4", code=1)
    assert (found["placed"], found["answers"][3]["answer"]) == (3, "rejection")


def test_all_or_nothing_places_none_when_one_does_not_fit(full: str, tmp_path: Path) -> None:
    size = ("--cpu", "4", "--memory", "12GiB", "--all-or-nothing")
    found = answer("place", "--fleet", full, *size, "--count", "4", code=1)
    assert found["placed"] == 0
    saved = tmp_path / "after.fleet"
    found = answer("place", "--fleet", full, *size, "--count", "3", "--save", str(saved))
    assert found["placed"] == 3
    assert len(fleetfile.load(saved).vms) == 6


def test_save_writes_the_fleet_with_the_vm(fleet: str, tmp_path: Path) -> None:
    saved = tmp_path / "after.fleet"
    size = ("--cpu", "2", "--memory", "4GiB")
    roost("place", "--fleet", fleet, "--name", "new", *size, "--save", str(saved))
    assert ("new", "a2") in [(vm.name, vm.host) for vm in fleetfile.load(saved).vms]


def test_a_name_that_is_taken_is_a_conflict(fleet: str) -> None:
    size = ("--cpu", "2", "--memory", "4GiB")
    found = answer("place", "--fleet", fleet, "--name", "db-1", *size, code=4)
    assert found["error"]["code"] == "conflict"


def test_fleet_from_standard_input() -> None:
    arguments = ("place", "--fleet", "-", "--cpu", "2", "--memory", "4GiB", "-o", "json")
    result = roost(*arguments, stdin=FLEET)
    assert json.loads(result.stdout)["host"] == "a2"


def test_fleet_from_csv_with_vms(tmp_path: Path) -> None:
    hosts, vms = tmp_path / "hosts.csv", tmp_path / "vms.csv"
    hosts.write_text("name,cpu,memory\nh1,8,16GiB\nh2,8,16GiB\n")
    vms.write_text("name,host,cpu,memory\nv,h1,4,8GiB\n")
    size = ("--cpu", "2", "--memory", "4GiB")
    assert answer("place", "--fleet", str(hosts), "--vms", str(vms), *size)["host"] == "h2"


def test_fleet_from_ganeti(tmp_path: Path) -> None:
    path = tmp_path / "cluster.data"
    path.write_text("g|u|preferred||\n\nn1|4096|0|4096|9000|9000|4|N|u|1\n\n\n\n")
    found = answer("place", "--fleet", str(path), "--cpu", "2", "--memory", "1GiB")
    assert found["host"] == "n1"


def test_explain_names_reasons_nearest_miss_and_smallest_fix(full: str) -> None:
    result = roost("explain", "--fleet", full, "--cpu", "4", "--memory", "16GiB")
    assert result.exit_code == 0, result.output
    assert "short by 4 GiB of memory on h1" in result.stdout
    assert "uncordon h4" in result.stdout
    assert "memory 12 GiB of 16 GiB" in result.stdout


def test_explain_as_json_counts_every_host_once(fleet: str) -> None:
    found = answer("explain", "--fleet", fleet, "--cpu", "2", "--memory", "8GiB")
    fits = [verdict["host"] for verdict in found["verdicts"] if verdict["fits"]]
    assert fits == ["a1", "a2"]
    refused = {reason["reason"]: reason["first"] for reason in found["reasons"]}
    assert refused == {"not_online": 1, "not_open": 1, "memory": 1}


def test_explain_one_host(fleet: str) -> None:
    size = ("--cpu", "2", "--memory", "8GiB")
    found = answer("explain", "--fleet", fleet, *size, "--host", "b1")
    [verdict] = found["verdicts"]
    assert verdict["reasons"] == ["memory"]
    result = roost("explain", "--fleet", fleet, *size, "--host", "b9")
    assert result.exit_code == 3
    assert "no host 'b9'" in result.stderr


def test_explain_lists_some_hosts_or_all(tmp_path: Path) -> None:
    path = tmp_path / "many.fleet"
    path.write_text("hosts h[01-30] cpu=8 memory=16GiB\n")
    arguments = ("explain", "--fleet", str(path), "--cpu", "1", "--memory", "1GiB")
    assert "--all lists them" in roost(*arguments).stdout
    assert "h30" in roost(*arguments, "--all").stdout


def test_capacity_counts_what_would_be_placed(full: str) -> None:
    size = ("--cpu", "4", "--memory", "6GiB")
    found = answer("capacity", "--fleet", full, *size)
    assert found["count"] == 6
    placed = answer("place", "--fleet", full, *size, "--count", "7", code=1)
    assert placed["placed"] == 6


def test_capacity_that_survives_a_host_is_smaller(full: str) -> None:
    size = ("--cpu", "1", "--memory", "2GiB")
    every = answer("capacity", "--fleet", full, *size)["count"]
    safe = answer("capacity", "--fleet", full, *size, "--survive", "host")
    assert safe["count"] < every
    assert safe["survive"] == "host"
    result = roost("capacity", "--fleet", full, *size, "--survive", "host")
    assert "while the loss of any host could be restarted elsewhere" in result.stdout


@pytest.mark.parametrize(
    "given",
    [("--for", "2h"), ("--reservation", "r"), ("--policy", "p"), ("--vm-label", "a=b")],
    ids=lambda g: g[0],
)
def test_capacity_of_a_fleet_file_knows_no_reservations(full: str, given: tuple[str, str]) -> None:
    size = ("--cpu", "1", "--memory", "2GiB")
    error = answer("capacity", "--fleet", full, *size, *given, code=2)["error"]
    assert given[0] in error["message"]
    assert "fleet file" in error["message"]


def test_info_prints_the_scheduling_block(fleet: str) -> None:
    result = roost("info", "a1", "--fleet", fleet)
    assert result.exit_code == 0, result.output
    assert "CPU: 8/16 (50.0% used)" in result.stdout
    assert "Memory: 24.0 GB/64.0 GB (37.5% used)" in result.stdout
    found = answer("info", "a1", "--fleet", fleet)
    assert found["resources"]["cpu"]["committed_milli"] == 8000
    assert found["running_vms"] == 1


def test_replay_gives_the_recorded_decision_byte_for_byte(fleet: str, tmp_path: Path) -> None:
    record = str(tmp_path / "decision.json")
    asked = ("--cpu", "2", "--memory", "4GiB", "--strategy", "random", "--label", "tier in gold")
    placed = answer(
        "place", "--fleet", fleet, *asked, "--group", "g spread zone", "--record", record
    )
    again = answer("replay", record, "--fleet", fleet)
    assert again["same"] is True
    assert again["decision"] == placed
    assert "byte for byte" in roost("replay", record, "--fleet", fleet).stdout


def test_replay_says_when_the_decision_differs(fleet: str, tmp_path: Path) -> None:
    record = tmp_path / "decision.json"
    size = ("--cpu", "2", "--memory", "4GiB")
    answer("place", "--fleet", fleet, *size, "--record", str(record))
    record.write_text(record.read_text().replace('"host": "a2"', '"host": "b1"'))
    assert answer("replay", str(record), "--fleet", fleet, code=1)["same"] is False


def test_replay_refuses_another_fleet_and_what_is_no_record(
    fleet: str, full: str, tmp_path: Path
) -> None:
    record = tmp_path / "decision.json"
    answer("place", "--fleet", fleet, "--cpu", "2", "--memory", "4GiB", "--record", str(record))
    error = answer("replay", str(record), "--fleet", full, code=4)["error"]
    assert "another fleet" in error["message"]
    record.write_text("{}")
    assert roost("replay", str(record), "--fleet", fleet).exit_code == 2
    record.write_text("{")
    assert roost("replay", str(record), "--fleet", fleet).exit_code == 2


def test_strategies_are_listed_with_formula_and_default() -> None:
    result = roost("strategies", env={"SCHEDULING_STRATEGY": "best_fit"})
    assert "best_fit (default)" in result.stdout
    listed = answer("strategies")
    assert listed["default"] == "least_loaded"
    assert all(each["formula"] for each in listed["strategies"])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--cpu", "2", "--memory", "8Gb"), "invalid_request", "unknown unit 'Gb'"),
        (("--cpu", "2", "--memory", "-1GiB"), "invalid_request", "is negative"),
        (("--cpu", "0", "--memory", "1GiB"), "invalid_request", "is zero"),
        (("--cpu", "nan", "--memory", "1GiB"), "invalid_request", "not a number"),
        (("--cpu", "2"), "invalid_request", "has no memory"),
        (("--cpu", "2", "--memory", "1GiB", "--strategy", "bst"), "invalid_strategy", "best_fit"),
        (("--cpu", "2", "--memory", "1GiB", "--label", "a within b"), "invalid_request", "within"),
        (("--cpu", "2", "--memory", "1GiB", "--x", "lic"), "invalid_request", "NAME=AMOUNT"),
        (("--cpu", "2", "--memory", "1GiB", "--group", "nope"), "invalid_request", "nope"),
    ],
)
def test_wrong_requests_are_refused(
    fleet: str, arguments: tuple[str, ...], code: str, says: str
) -> None:
    for command in ("place", "explain", "capacity"):
        error = answer(command, "--fleet", fleet, *arguments, code=2)["error"]
        assert error["code"] == code
        assert says in error["message"]
        assert set(error) == {"code", "message", "details", "hint"}


def test_a_typo_in_the_fleet_file_has_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "typo.fleet"
    path.write_text("host h1 cpu=8 memory=8GiB\nhost h2 cpu=8 memroy=8GiB\n")
    result = roost("place", "--fleet", str(path), "--cpu", "1", "--memory", "1GiB")
    assert result.exit_code == 2
    assert f"{path}:2:15: unknown word 'memroy'" in result.stderr.replace("\n", "")
    assert "Maybe 'memory'?" in result.stderr
    assert result.stdout == ""


def test_a_missing_file_is_not_found() -> None:
    error = answer("place", "--fleet", "/no/such.fleet", "--cpu", "1", "--memory", "1GiB", code=3)
    assert "/no/such.fleet" in error["error"]["message"]


def test_without_a_fleet_a_server_is_asked() -> None:
    env = {"ROOST_SERVER": "http://127.0.0.1:9"}
    result = roost("place", "--cpu", "1", "--memory", "1GiB", env=env)
    assert result.exit_code == 5
    assert "no server answers at http://127.0.0.1:9" in result.stderr
    assert "roost serve" in result.stderr
    error = answer("place", "--cpu", "1", "--memory", "1GiB", code=5, env=env)["error"]
    assert error["code"] == "unavailable"


def test_json_set_in_the_environment_holds_for_errors_too() -> None:
    env = {"ROOST_OUTPUT": "json", "ROOST_SERVER": "http://127.0.0.1:9"}
    result = roost("place", "--cpu", "1", "--memory", "1GiB", env=env)
    assert json.loads(result.stdout)["error"]["code"] == "unavailable"


def test_fleet_comes_from_the_environment(fleet: str) -> None:
    found = answer("place", "--cpu", "1", "--memory", "1GiB", env={"ROOST_FLEET": fleet})
    assert found["host"] == "a2"


def test_an_unknown_default_strategy_is_invalid_strategy(fleet: str) -> None:
    size = ("--cpu", "1", "--memory", "1GiB")
    env = {"SCHEDULING_STRATEGY": "fastest"}
    error = answer("place", "--fleet", fleet, *size, code=2, env=env)["error"]
    assert error["code"] == "invalid_strategy"
    assert "least_loaded" in error["details"]["valid"]


def test_usage_mistakes_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", "--nope", "-o", "json"]) == 2
    assert "--nope" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert run(["plaec"]) == 2
    assert "plaec" in capsys.readouterr().err


def test_help_and_version_need_no_fleet() -> None:
    assert "explain" in roost("--help").stdout
    assert "--gpu-share" in roost("place", "--help").stdout
    assert roost("--version").stdout.startswith("roost ")


@pytest.mark.parametrize("name", ["small", "full", "gpu"])
def test_the_examples_load_and_answer(name: str) -> None:
    path = Path(__file__).resolve().parents[3] / "examples" / f"{name}.fleet"
    found = answer("explain", "--fleet", str(path), "--cpu", "4", "--memory", "16GiB")
    expected = "rejection" if name == "full" else "placement"
    assert found["answer"]["answer"] == expected
