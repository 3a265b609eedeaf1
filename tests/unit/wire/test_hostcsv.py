"""Import from CSV files."""

from pathlib import Path

import pytest

from roost.base.errors import FleetFileError, InvalidRequest, NotFound
from roost.base.units import GIB
from roost.wire.text import fleetfile, hostcsv
from roost.wire.text.files import load_fleet

HOSTS = """name,cpu,memory,disk,zone,labels,x.license
h2,8,32GiB,1TiB,b,"ssd=true,tier=gold",5
h1,16,64GiB,,a,,
"""
VMS = """name,host,cpu,memory,label
web-1,h1,2,4GiB,"tier in gold,silver"
web-2,h2,1,2GiB,
"""


def test_columns_mean_what_the_words_of_a_fleet_file_mean() -> None:
    same = fleetfile.parse(
        "host h1 cpu=16 memory=64GiB zone=a\n"
        "host h2 cpu=8 memory=32GiB disk=1TiB zone=b labels=ssd=true,tier=gold x.license=5\n"
        'vm web-1 on h1 cpu=2 memory=4GiB label="tier in gold,silver"\n'
        "vm web-2 on h2 cpu=1 memory=2GiB\n"
    )
    assert hostcsv.parse(HOSTS, VMS) == same


def test_vms_are_optional_and_comments_and_blank_lines_are_skipped() -> None:
    fleet = hostcsv.parse('# made by hand\nname,cpu,memory\n\nh1, 8 ,"1""GiB"\n'.replace('""', ""))
    assert fleet.hosts[0].memory.total == GIB
    assert fleet.vms == ()


@pytest.mark.parametrize(
    ("hosts", "vms", "line", "column", "says"),
    [
        ("name,cpu,memroy\n", "", 1, 10, "unknown word 'memroy'"),
        ("cpu,memory\n", "", 1, 1, "no column 'name'"),
        ("name,cpu,memory\nh1,8,8Gb\n", "", 2, 6, "unknown unit 'Gb'"),
        ("name,cpu,memory\nh1,8\n", "", 2, 4, "2 cells under 3 columns"),
        ("name,cpu,memory\n,8,1GiB\n", "", 2, 1, "name is empty"),
        ("name,cpu,memory\nh1,8,1GiB\nh1,8,1GiB\n", "", 3, 1, "listed twice"),
        ("name,cpu,memory\nh1,,1GiB\n", "", 2, 1, "has no cpu"),
        ('name,cpu,memory\nh1,"8,1GiB\n', "", 2, 4, "never closed"),
        ('name,cpu,memory\nh1,"8"x,1GiB\n', "", 2, 7, "after a closing quote"),
        ('name,cpu,memory,labels\nh1,8,1GiB,"a,a"\n', "", 2, 14, "label 'a' is given twice"),
        (HOSTS, "name,host,cpu,memory\nv,h9,1,1GiB\n", 2, 3, "unknown host 'h9'"),
        (HOSTS, "name,host,cpu,memory,group\nv,h1,1,1GiB,g\n", 2, 13, "group 'g' has no rule"),
    ],
)
def test_mistakes_name_line_and_column(
    hosts: str, vms: str, line: int, column: int, says: str
) -> None:
    with pytest.raises(FleetFileError, match=says) as caught:
        hostcsv.parse(hosts, vms)
    assert (caught.value.details["line"], caught.value.details["column"]) == (line, column)


def test_the_kind_of_file_is_told_by_its_ending(tmp_path: Path) -> None:
    hosts, vms, fleet = tmp_path / "h.csv", tmp_path / "v.csv", tmp_path / "f.fleet"
    hosts.write_text(HOSTS)
    vms.write_text(VMS)
    fleet.write_text(fleetfile.dump(hostcsv.parse(HOSTS, VMS)))
    assert load_fleet(str(hosts), vms=vms) == load_fleet(str(fleet))
    assert load_fleet(str(hosts)).vms == ()
    with pytest.raises(InvalidRequest, match=r"goes with a \.csv file"):
        load_fleet(str(fleet), vms=vms)
    with pytest.raises(NotFound):
        load_fleet(str(tmp_path / "none.data"))
