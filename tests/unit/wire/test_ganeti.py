"""Import of Ganeti's text format."""

from pathlib import Path

import pytest

from roost.base.errors import FleetFileError
from roost.base.units import MIB
from roost.model.description import FleetDescription
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Admin, Health, HostSpec
from roost.wire.text import fleetfile, ganeti

GROUPS = "main|uuid-1|preferred||\nspare|uuid-2|unallocable||\n"
NODES = (
    "n2|4096|512|2048|10000|7000|8|N|uuid-1|1|hv:new,big\n"
    "n1|4096|0|4096|10000|9000|8|M|uuid-1|1\n"
    "n3|4096|0|4096|10000|10000|8|Y|uuid-1|1\n"
    "n4|4096|0|4096|10000|10000|8|N|uuid-2|1\n"
)
INSTANCES = (
    "db1|1024|1000|2|running|Y|n2|n1|drbd|service:db,blue|1\n"
    "db2|512|500|1|ADMIN_down|Y|n2||plain|service:db|1\n"
    "img|512|700|1|running|Y|n1||rbd||1\n"
)
TAGS = "htools:iextags:service\n"
POLICIES = "|1,1,1,1,1,1|x|plain,drbd|2.0|32.0\nspare|1,1,1,1,1,1|x|plain,drbd|1.5|32.0\n"


def whole(
    groups: str = GROUPS,
    nodes: str = NODES,
    instances: str = INSTANCES,
    tags: str = TAGS,
    policies: str = POLICIES,
) -> str:
    return f"{groups}\n{nodes}\n{instances}\n{tags}\n{policies}"


def host(fleet: FleetDescription, name: str) -> HostSpec:
    return next(host for host in fleet.hosts if host.name == name)


def test_nodes_become_hosts_in_name_order_with_groups_as_zones() -> None:
    fleet = ganeti.parse(whole())
    assert [(h.name, h.zone) for h in fleet.hosts] == [
        ("n1", "main"),
        ("n2", "main"),
        ("n3", "main"),
        ("n4", "spare"),
    ]


def test_offline_node_and_unallocable_group_take_no_vms() -> None:
    fleet = ganeti.parse(whole())
    assert host(fleet, "n3").health is Health.OFFLINE
    assert host(fleet, "n4").admin is Admin.CORDONED
    assert host(fleet, "n1").health is Health.ONLINE


def test_node_memory_is_reserved_and_so_is_what_nobody_explains() -> None:
    fleet = ganeti.parse(whole())
    # 4096 - 2048 free - 1536 of instances = 512, which is node_mem itself.
    assert host(fleet, "n2").memory.reserve == 512 * MIB
    # 10000 - 7000 free - 1500 of primaries: 1500 MiB that no instance explains.
    assert host(fleet, "n2").disk.reserve == 1500 * MIB


def test_disk_of_a_drbd_secondary_stays_taken() -> None:
    assert host(ganeti.parse(whole()), "n1").disk.reserve == 1000 * MIB


def test_vcpu_ratio_comes_from_the_group_then_the_cluster_then_ganeti() -> None:
    fleet = ganeti.parse(whole())
    assert host(fleet, "n4").cpu.ratio_milli == 1500
    assert host(fleet, "n1").cpu.ratio_milli == 2000
    bare = ganeti.parse(whole(policies=""))
    assert host(bare, "n1").cpu.ratio_milli == 4000


def test_policies_after_one_blank_line_only_are_understood() -> None:
    fleet = ganeti.parse(f"{GROUPS}\n{NODES}\n{INSTANCES}\n{POLICIES}")
    assert host(fleet, "n1").cpu.ratio_milli == 2000


def test_tags_become_labels() -> None:
    assert host(ganeti.parse(whole()), "n2").labels == (("hv:new", "true"), ("big", "true"))


def test_instances_become_vms_and_only_local_disks_count() -> None:
    fleet = ganeti.parse(whole())
    found = {vm.name: (vm.host, vm.demand.disk_bytes // MIB) for vm in fleet.vms}
    assert found == {"db1": ("n2", 1000), "db2": ("n2", 500), "img": ("n1", 0)}


def test_exclusion_tags_become_anti_affinity_only_when_the_cluster_says_so() -> None:
    fleet = ganeti.parse(whole())
    assert fleet.groups == (GroupSpec("service:db", GroupRule.ANTI_AFFINITY),)
    assert [vm.groups for vm in fleet.vms] == [("service:db",), ("service:db",), ()]
    assert ganeti.parse(whole(tags="")).groups == ()


def test_unknown_amount_is_an_unknown_total() -> None:
    fleet = ganeti.parse(whole(nodes="n1|?|?|?|10|10|8|N|uuid-1|1\n", instances=""))
    assert host(fleet, "n1").memory.total is None


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        (whole(nodes=NODES.replace("|8|N|", "|8|Q|", 1)), 4, 31, "unknown role 'Q'"),
        (whole(nodes=NODES.replace("4096", "4O96", 1)), 4, 4, "4O96"),
        (whole(nodes="n1|1|2\n"), 4, 6, "at least 9 fields"),
        (whole(nodes=NODES + NODES.splitlines()[0] + "\n"), 8, 1, "listed twice"),
        (whole(instances=INSTANCES.replace("n1||", "n9||")), 11, 25, "unknown node 'n9'"),
        (whole(instances=INSTANCES.replace("img|512", "img|0")), 11, 5, "memory is zero"),
        (whole(instances=INSTANCES * 2), 12, 1, "listed twice"),
        (whole(groups="main|uuid-9|preferred||\n"), 3, 33, "unknown group 'uuid-1'"),
        (whole(groups="main|uuid-1|sometimes||\n"), 1, 13, "unknown allocation policy"),
        (whole(policies="|a|b\n"), 15, 4, "at least 5 fields"),
    ],
)
def test_mistakes_name_line_and_column(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(FleetFileError, match=says) as caught:
        ganeti.parse(text, "c.data")
    assert (caught.value.details["line"], caught.value.details["column"]) == (line, column)


def test_an_empty_file_is_an_empty_fleet() -> None:
    assert ganeti.parse("") == FleetDescription()


DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "ganeti"


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no sample clusters in {DATA}")
def test_every_sample_cluster_loads_and_survives_a_fleet_file() -> None:
    paths = sorted(DATA.glob("*.data"))
    assert paths
    for path in paths:
        fleet = ganeti.load(path)
        assert fleet.hosts
        assert fleet.vms
        assert fleetfile.parse(fleetfile.dump(fleet)) == fleet
