"""A NUMA cell without cpu and memory keeps its position, through reading back and undoing too."""

from dataclasses import replace

from roost.fleet.check import check
from roost.fleet.fleet import Fleet
from roost.model.hosts import Cell, HostSpec, Resource

CELLS = (Cell(0, 0), Cell(4000, 2**30), Cell(0, 0))


def _spec() -> HostSpec:
    return HostSpec("h", Resource(4000), Resource(2**30), Resource(2**40), cells=CELLS)


def test_an_empty_cell_is_read_back() -> None:
    fleet = Fleet()
    row = fleet.register(_spec())
    fleet.register(replace(_spec(), name="none", cells=()))
    assert fleet.hosts.spec(row).cells == CELLS
    assert fleet.hosts.spec(row + 1).cells == ()
    check(fleet)
    assert [len(host.cells) for host in fleet.to_description().hosts] == [3, 0]


def test_an_update_that_is_undone_leaves_every_cell_where_it_was() -> None:
    fleet = Fleet()
    row = fleet.register(_spec())
    mark = fleet.mark()
    fleet.update_host(replace(_spec(), cells=(Cell(1000, 2**20),)))
    assert fleet.hosts.spec(row).cells == (Cell(1000, 2**20),)
    fleet.undo(mark)
    assert fleet.hosts.spec(row).cells == CELLS
    assert fleet.hosts.arrays.cell_capacity[row].tolist() == [[0, 0], [4000, 2**30], [0, 0]]
