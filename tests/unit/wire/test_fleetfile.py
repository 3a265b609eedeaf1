"""The fleet file: what its words mean, and where its mistakes are."""

from pathlib import Path

import pytest

from roost.base.errors import FleetFileError, InvalidRequest, NotFound
from roost.base.units import GIB, TIB
from roost.model.constraints import (
    Constraints,
    LabelOperator,
    LabelTerm,
    Predicate,
    Preference,
    Toleration,
)
from roost.model.description import FleetDescription, HoldSpec, PlacedVM, UsedSpec
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import (
    Admin,
    Cell,
    Device,
    Health,
    HostSpec,
    Resource,
    Scope,
    Taint,
    TaintEffect,
)
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.wire.text.fleetfile import dump, load, parse
from roost.wire.text.requestwords import parse_request

H1 = "host h1 cpu=8 memory=16GiB\n"


def test_host_line_says_everything_a_host_registers_with() -> None:
    text = (
        "host h1 cpu=16 memory=32GiB disk=500GiB zone=a rack=r1 site=s labels=ssd,tier=gold "
        "taints=dedicated=db,old:prefer-not arch=aarch64 driver=libvirt capabilities=vtpm,vsock "
        "gpus=2xA100:80GiB,T4:whole cells=2x8:16GiB max-vms=50 health=suspect admin=cordoned "
        "reserve.memory=2GiB ratio.cpu=1.5 x.license=10 reserve.x.license=1"
    )
    [host] = parse(text).hosts
    assert host == HostSpec(
        name="h1",
        cpu=Resource(16_000, ratio_milli=1500),
        memory=Resource(32 * GIB, reserve=2 * GIB),
        disk=Resource(500 * GIB),
        extended=(("license", Resource(10, reserve=1)),),
        zone="a",
        rack="r1",
        site="s",
        labels=(("ssd", ""), ("tier", "gold")),
        taints=(Taint("dedicated", "db"), Taint("old", "", TaintEffect.PREFER_NOT)),
        architecture="aarch64",
        driver="libvirt",
        capabilities=("vtpm", "vsock"),
        devices=(Device("A100", 80 * GIB),) * 2 + (Device("T4", 0, shareable=False),),
        cells=(Cell(8000, 16 * GIB),) * 2,
        max_vms=50,
        health=Health.SUSPECT,
        admin=Admin.CORDONED,
    )


def test_question_mark_is_an_unknown_total() -> None:
    [host] = parse("host h1 cpu=8 memory=? x.license=?").hosts
    assert host.memory.total is None
    assert host.extended[0][1].total is None
    assert not host.known


def test_defaults_fill_the_hosts_below_and_yield_to_their_words() -> None:
    fleet = parse(
        "host h0 cpu=1 memory=1GiB\n"
        "defaults cpu=16 memory=64GiB zone=a\n"
        "host h1\n"
        "host h2 zone=b\n"
        "defaults cpu=4\n"
        "host h3\n"
    )
    assert [(h.name, h.zone, h.cpu.total) for h in fleet.hosts] == [
        ("h0", "", 1000),
        ("h1", "a", 16_000),
        ("h2", "b", 16_000),
        ("h3", "a", 4000),
    ]


def test_vm_defaults_fill_the_vms_below() -> None:
    fleet = parse(H1 + "defaults vms cpu=2 memory=4GiB\nvm a on h1\nvm b on h1 cpu=1\n")
    assert [vm.demand.cpu_milli for vm in fleet.vms] == [2000, 1000]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("h[1-3]", ["h1", "h2", "h3"]),
        ("h[08-10]", ["h08", "h09", "h10"]),
        ("h[1,4-5]x", ["h1x", "h4x", "h5x"]),
        ("a,h[1,3],z", ["a", "h1", "h3", "z"]),
        ("r[1-2]h[1-2]", ["r1h1", "r1h2", "r2h1", "r2h2"]),
    ],
)
def test_ranges_expand(pattern: str, names: list[str]) -> None:
    fleet = parse(f"hosts {pattern} cpu=1 memory=1GiB")
    assert [host.name for host in fleet.hosts] == names


def test_hosts_register_in_plain_name_order() -> None:
    fleet = parse("defaults cpu=1 memory=1GiB\nhost b\nhost h10\nhost h2\nhost a\n")
    assert [host.name for host in fleet.hosts] == ["a", "b", "h10", "h2"]


def test_many_vms_are_dealt_out_over_the_hosts_in_turn() -> None:
    fleet = parse("hosts h[1-2] cpu=8 memory=8GiB\nvms w[1-3] on h[1-2] cpu=1 memory=1GiB")
    assert [(vm.name, vm.host) for vm in fleet.vms] == [("w1", "h1"), ("w2", "h2"), ("w3", "h1")]


@pytest.mark.parametrize(
    ("line", "group"),
    [
        ("group g anti-affinity host", GroupSpec("g", GroupRule.ANTI_AFFINITY)),
        ("group g affinity", GroupSpec("g", GroupRule.AFFINITY)),
        (
            "group g affinity zone soft weight=30",
            GroupSpec("g", GroupRule.AFFINITY, Scope.ZONE, hard=False, weight=30),
        ),
        (
            "group g spread rack max-skew=2",
            GroupSpec("g", GroupRule.SPREAD, Scope.RACK, max_skew=2),
        ),
    ],
)
def test_group_lines(line: str, group: GroupSpec) -> None:
    assert parse(line).groups == (group,)


def test_vm_line_says_demand_constraints_groups_and_positions() -> None:
    fleet = parse(
        "vm web-1 on h1 cpu=2.5 memory=4GiB disk=20GiB x.license=1 group=web gpu=2 gpu-share=250 "
        'gpu-model=A100,H100 gpu-memory=40GiB numa=one devices=0,1 cells=1 label="tier in '
        'gold, silver" label=ssd=true tolerate=dedicated=db,old zone=a,b rack=r site=s '
        'arch=x86_64 driver=qemu capability=vtpm pin=h1 exclude=h2,h3 prefer="ssd exists:30"\n'
        "host h1 cpu=8 memory=16GiB gpus=2xA100 cells=2x4:8GiB\n"
        "group web anti-affinity\n"
    )
    assert fleet.vms == (
        PlacedVM(
            "web-1",
            "h1",
            Demand(
                2500,
                4 * GIB,
                20 * GIB,
                (("license", 1),),
                DeviceDemand(2, 250, ("A100", "H100"), 40 * GIB),
                NumaMode.ONE_CELL,
            ),
            Constraints(
                labels=(
                    LabelTerm("tier", LabelOperator.IN, ("gold", "silver")),
                    LabelTerm("ssd", LabelOperator.IN, ("true",)),
                ),
                tolerations=(Toleration("dedicated", "db"), Toleration("old")),
                architecture="x86_64",
                driver="qemu",
                capabilities=("vtpm",),
                zones=("a", "b"),
                racks=("r",),
                sites=("s",),
                pinned=("h1",),
                excluded=("h2", "h3"),
                preferences=(Preference(LabelTerm("ssd", LabelOperator.EXISTS), 30),),
            ),
            ("web",),
            (0, 1),
            (1,),
        ),
    )


def test_holds_and_measured_use() -> None:
    fleet = parse(H1 + "hold r on h1 cpu=2 memory=4GiB\nused h1 cpu=3.5 memory=20GiB x.fd=9\n")
    assert fleet.holds == (HoldSpec("r", "h1", Demand(2000, 4 * GIB)),)
    assert fleet.used == (UsedSpec("h1", (("cpu", 3500), ("memory", 20 * GIB), ("fd", 9))),)


def test_quotes_backslashes_and_comments() -> None:
    fleet = parse(
        'host "rack one" cpu=1 memory=1GiB # zone=x\n'
        "host a\\ b\\,c cpu=1 memory=1GiB labels=k=v\\,w,\\#=x#1 zone=\\e\n"
        "  # a comment alone\n"
    )
    assert [host.name for host in fleet.hosts] == ["a b,c", "rack one"]
    assert fleet.hosts[0].labels == (("k", "v,w"), ("#", "x#1"))
    assert fleet.hosts[1].zone == ""


def test_windows_line_ends_and_a_byte_order_mark_are_no_mistake() -> None:
    text = "\ufeffhost h1 cpu=1 memory=1GiB\r\n\r\nhost h2 cpu=1 memory=1GiB\r\n"
    assert [host.name for host in parse(text).hosts] == ["h1", "h2"]


@pytest.mark.parametrize(
    ("text", "line", "column", "says", "hint"),
    [
        ("hsot h1 cpu=1", 1, 1, "unknown statement 'hsot'", "'host'"),
        ("\nhost h1 cpu=1 memroy=1GiB", 2, 15, "unknown word 'memroy'", "'memory'"),
        ("host h1 cpu=1 memory=8Gb", 1, 22, "unknown unit 'Gb'", "GiB"),
        ("host h1 cpu=1 memory=8", 1, 22, "has no unit", "GiB"),
        ("host h1 cpu=-1 memory=8GiB", 1, 13, "is negative", None),
        ("host h1 cpu=NaN memory=8GiB", 1, 13, "is not a number", None),
        ("host h1 cpu=1 memory=300TiB", 1, 22, "more than 256 TiB", None),
        ("host h1 cpu=1 cpu=2 memory=1GiB", 1, 15, "'cpu' is given twice", None),
        ("host h1 cpu=1", 1, 6, "host 'h1' has no memory", "memory=?"),
        ("host h1 cpu memory=1GiB", 1, 9, "'cpu' needs a value", "cpu=VALUE"),
        ("host h1 cpu= memory=1GiB", 1, 9, "'cpu' needs a value", None),
        ("host cpu=1 memory=1GiB", 1, 6, "host needs a name", None),
        ("host", 1, 1, "host needs a name", None),
        (H1 + H1, 2, 6, "host 'h1' is already on line 1", None),
        (H1 + "host h2 cpu=1 memory=1GiB ratio.cpu=0", 2, 27, "overcommit ratio 0.0", None),
        (H1 + "host h2 cpu=1 memory=1GiB reserve.x.a=1", 2, 27, "does not have", None),
        ("host h1 cpu=1 memory=1GiB x.cpu=1", 1, 27, "name of a base resource", "cpu"),
        ("host h1 cpu=1 memory=1GiB health=onlin", 1, 34, "unknown health 'onlin'", "'online'"),
        ("host h1 cpu=1 memory=1GiB labels=a,a=1", 1, 36, "label 'a' is given twice", None),
        ("host h1 cpu=1 memory=1GiB labels=a,,b", 1, 36, "empty item", None),
        ("host h1 cpu=1 memory=1GiB taints=a:nope", 1, 36, "unknown taint effect", "'no-place'"),
        ("host h1 cpu=1 memory=1GiB cells=8", 1, 33, "has no memory", "8:16GiB"),
        ("host h1 cpu=1 memory=1GiB gpus=0xA", 1, 32, "count of zero", None),
        ("hosts h[1-] cpu=1 memory=1GiB", 1, 9, "bad range '1-'", "h[1-20]"),
        ("hosts h[9-1] cpu=1 memory=1GiB", 1, 9, "ends before it begins", "[1-9]"),
        ("hosts h[1-9 cpu=1 memory=1GiB", 1, 9, "never closed", None),
        ("hosts h1-9] cpu=1 memory=1GiB", 1, 11, "']' without '['", None),
        ("hosts h[0-99999999] cpu=1 memory=1GiB", 1, 9, "more than 1000000", None),
        ("hosts h[0-999]x[0-9999] cpu=1 memory=1GiB", 1, 7, "more than 1000000", None),
        ("hosts h[1-2],,x cpu=1 memory=1GiB", 1, 14, "name is missing", "comma"),
        ("hosts h[1-2,2] cpu=1 memory=1GiB", 1, 7, "host 'h2' is already on line 1", None),
        ('host "h1 cpu=1', 1, 6, "quote is never closed", None),
        ("host h1 zone=\\", 1, 14, "backslash ends the line", None),
        ("host h1 zone=\\d", 1, 14, "unknown escape", None),
        ("defaults hots cpu=1", 1, 10, "unknown kind of defaults", "'hosts'"),
        ("group g", 1, 7, "has no rule", "anti-affinity"),
        ("group g anti-afinity", 1, 9, "unknown group rule", "'anti-affinity'"),
        ("group g spread hots", 1, 16, "unknown scope 'hots'", "'host'"),
        ("group g spread zone max-skew=0", 1, 21, "max skew 0", None),
        ("group g spread zone soft weight=101", 1, 26, "weight 101", None),
        ("group g spread\ngroup g spread", 2, 7, "group 'g' is already on line 1", None),
        (H1 + "vm a on h2 cpu=1 memory=1GiB", 2, 9, "unknown host 'h2'", "'h1'"),
        (H1 + "vm a h1 cpu=1 memory=1GiB", 2, 6, "vm 'a' needs a host", "vm a on HOST"),
        (H1 + "vm a on h1 cpu=1", 2, 4, "vm 'a' has no memory", None),
        (H1 + "vm a on h1 cpu=0 memory=1GiB", 2, 12, "is zero", None),
        (H1 + "vm a on h1 cpu=1 memory=1GiB group=g", 2, 36, "unknown group 'g'", None),
        (H1 + "vm a on h1 cpu=1 memory=1GiB gpu=1 gpu-share=1001", 2, 36, "share 1001", None),
        (H1 + "vm a on h1 cpu=1 memory=1GiB devices=0", 2, 38, "host 'h1' has 0 of them", None),
        (H1 + "vm a on h1 cpu=1 memory=1GiB numa=tow", 2, 35, "unknown numa 'tow'", None),
        (
            H1 + 'vm a on h1 cpu=1 memory=1GiB label="tier within gold"',
            2,
            42,
            "unknown label operator 'within'",
            None,
        ),
        (H1 + "vm a on h1 cpu=1 memory=1GiB label=ssd", 2, 36, "no operator", "'ssd exists'"),
        (H1 + 'vm a on h1 cpu=1 memory=1GiB label="n gt x"', 2, 37, "whole number", None),
        (H1 + 'vm a on h1 cpu=1 memory=1GiB prefer="s exists:0"', 2, 47, "weight 0", None),
        (H1 + "vm a on h1 cpu=1 memory=1GiB\n" * 2, 3, 4, "vm 'a' is already on line 2", None),
        (H1 + "hold r on h1 cpu=1 memory=1GiB zone=a", 2, 32, "unknown word 'zone'", None),
        (H1 + "used h2 cpu=1", 2, 6, "unknown host 'h2'", "'h1'"),
        (H1 + "used h1 cpu=1\nused h1 cpu=1", 3, 6, "is already on line 2", None),
    ],
)
def test_mistakes_name_line_column_and_the_closest_word(
    text: str, line: int, column: int, says: str, hint: str | None
) -> None:
    with pytest.raises(FleetFileError) as caught:
        parse(text, "my.fleet")
    error = caught.value
    assert (error.details["line"], error.details["column"]) == (line, column)
    assert error.message.startswith(f"my.fleet:{line}:{column}: ")
    assert says in error.message
    assert hint is None or (error.hint is not None and hint in error.hint)
    assert error.hint is None or error.hint.startswith("Maybe")


def test_second_vm_of_a_flavor_still_has_its_host_checked() -> None:
    with pytest.raises(FleetFileError, match="<text>:3:9: unknown host 'h9'"):
        parse(H1 + "vm a on h1 cpu=1 memory=1GiB\nvm b on h9 cpu=1 memory=1GiB\n")


def test_flavor_is_read_anew_after_new_defaults() -> None:
    lines = (
        "defaults vms memory=1GiB",
        "vm a on h1 cpu=1",
        "defaults vms memory=2GiB",
        "vm b on h1 cpu=1",
    )
    fleet = parse(H1 + "\n".join(lines))
    assert [vm.demand.memory_bytes for vm in fleet.vms] == [GIB, 2 * GIB]


def test_load_names_a_missing_file() -> None:
    with pytest.raises(NotFound, match=r"no-such\.fleet"):
        load("/tmp/no-such.fleet")


def test_load_refuses_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "bad.fleet"
    path.write_bytes(b"# ok\nhost \xff\n")
    with pytest.raises(FleetFileError, match=r"bad\.fleet:2:6: this is not UTF-8"):
        load(path)


def test_dump_makes_shared_words_defaults_and_sorts_hosts() -> None:
    text = dump(parse("defaults cpu=8 memory=1TiB\nhost b zone=y\nhost a zone=x\n"))
    assert text == "defaults cpu=8 memory=1TiB\nhost a zone=x\nhost b zone=y\n"


def test_dump_keeps_the_order_of_extended_resources() -> None:
    fleet = parse("host a cpu=1 memory=1B x.p=1 x.q=2\nhost b cpu=1 memory=1B x.q=2 x.p=3\n")
    assert parse(dump(fleet)) == fleet


def test_dump_refuses_a_compiled_predicate() -> None:
    constraints = Constraints(predicate=Predicate("p", lambda fleet: fleet))
    vm = PlacedVM("v", "h", Demand(1000, GIB), constraints)
    with pytest.raises(InvalidRequest, match="predicate 'p'"):
        dump(FleetDescription(vms=(vm,)))


def test_request_from_option_words() -> None:
    request = parse_request(
        [
            ("cpu", "4"),
            ("memory", "16GiB"),
            ("gpu-share", "500"),
            ("label", "tier in gold,silver"),
            ("zone", "a"),
            ("zone", "b"),
            ("group", "web,api"),
            ("group", "db anti-affinity rack soft"),
            ("strategy", "best_fit"),
            ("seed", "7"),
            ("priority", "-3"),
        ],
        "web-1",
    )
    assert request.name == "web-1"
    assert request.demand == Demand(4000, 16 * GIB, devices=DeviceDemand(1, 500))
    assert request.constraints.zones == ("a", "b")
    assert request.constraints.labels[0].values == ("gold", "silver")
    assert request.groups == (
        "web",
        "api",
        GroupSpec("db", GroupRule.ANTI_AFFINITY, Scope.RACK, hard=False),
    )
    assert (request.strategy, request.seed, request.priority) == ("best_fit", 7, -3)


def test_request_words_refuse_without_a_place_in_a_file() -> None:
    with pytest.raises(InvalidRequest, match="memory '8Gb' has the unknown unit 'Gb'") as caught:
        parse_request([("cpu", "1"), ("memory", "8Gb")], "v")
    assert not isinstance(caught.value, FleetFileError)
    assert caught.value.hint == "Maybe 8GiB or 8GB?"


def test_label_shorthand_for_not_in() -> None:
    request = parse_request([("cpu", "1"), ("memory", "1GiB"), ("label", "tier!=gold")], "v")
    assert request.constraints.labels == (LabelTerm("tier", LabelOperator.NOT_IN, ("gold",)),)


def test_large_sizes_survive() -> None:
    fleet = parse("host h cpu=1 memory=256TiB disk=1B")
    assert fleet.hosts[0].memory.total == 256 * TIB
    assert parse(dump(fleet)) == fleet
