"""Decisions on VMs that end or draw, against a plain scan of every host at every moment."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from roost.control.create.drawing import find_living
from roost.control.memory.holdings import Holdings, Life
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.roster import Roster
from roost.ledger.claims.holdsums import Living
from roost.ledger.schema.rows import HoldRow, ReservationRow
from roost.model.flow import Placement, PlaceRequest
from roost.model.hosts import HostSpec, Resource
from roost.model.resources import Demand

NOW, LAST, CORES = 10, 30, 8
Drawn = list[tuple[int, int, int, int | None, str]]  # host, cores, from, until, owner
Placed = list[tuple[int, int, int | None, str | None]]  # host, cores, until, draws on

_owner = st.sampled_from(("r", "s"))
_until = st.none() | st.integers(NOW + 1, LAST)
_holds = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, LAST), _until, _owner),
    max_size=5,
)
_vms = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3), _until, st.none() | _owner), max_size=5
)


def roster_of(holds: Drawn, vms: Placed) -> Roster:
    """Return four hosts of eight cores with these holds and VMs."""
    roster = Roster("least_loaded", lambda: NOW)
    fleet = roster.fleet
    for number in range(4):
        spec = HostSpec(f"h{number}", Resource(CORES * 1000), Resource(2**36), Resource(2**40))
        entry = _Named(None, None, fleet.register(spec), 1)  # type: ignore[arg-type]
        roster.hosts[number] = roster.by_fleet_row[number] = entry
    for owner in ("r", "s"):
        units = [
            HoldRow(
                id=f"{owner}/{at:04d}", host=host, kind="reservation", owner=owner,
                cpu_milli=cores * 1000, windows=f"[[{begin},{'null' if end is None else end}]]",
            )
            for at, (host, cores, begin, end, whose) in enumerate(holds)
            if whose == owner and (end is None or end > begin)
        ]  # fmt: skip
        roster.holdings.put(_reservation(owner), units)
    for at, (host, cores, until, draws_on) in enumerate(vms):
        fleet.apply(f"vm{at}", host, fleet.vector(Demand(cores * 1000, 1)))
        living = Living((cores * 1000, 1, 0, 1), 2**62 if until is None else until, draws_on)
        roster.charge_living(f"vm{at}", host, living)
    for number in range(4):
        fleet.keep_free(number, roster.holdings.held(number, NOW))
    return roster


class _Named(HostEntry):
    """A host without a row."""

    @property
    def number(self) -> int:
        """Return the host's number."""
        return self.fleet_row

    @property
    def name(self) -> str:
        """Return the host's name."""
        return f"h{self.fleet_row}"


def _reservation(name: str) -> ReservationRow:
    return ReservationRow(
        id=name, description="", owner_kind="purpose", owner=name, cpu_milli=1, memory_bytes=1,
        disk_bytes=0, units=1, from_ms=0, windows="[]", created_ms=0, created_by="",
        changed_ms=0, changed_by="",
    )  # fmt: skip


def room(host: int, holds: Drawn, vms: Placed, until: int | None, but: str | None) -> int:
    """Return how many cores a VM may have on a host for its whole life, moment by moment."""
    least = CORES
    for at in range(NOW, LAST + 2):
        if until is not None and at >= until:
            break
        alive = [vm for vm in vms if vm[0] == host and (vm[2] is None or at < vm[2])]
        load = sum(vm[1] for vm in alive)
        for owner in {"r", "s"} - {but}:
            kept = sum(
                hold[1]
                for hold in holds
                if hold[0] == host
                and hold[4] == owner
                and hold[2] <= at
                and (hold[3] is None or at < hold[3])
            )
            load += max(0, kept - sum(vm[1] for vm in alive if vm[3] == owner))
        least = min(least, CORES - load)
    return least


def decide(holds: Drawn, vms: Placed, cores: int, until: int | None, full: int = 0) -> None:
    vms = [*vms, *((host, CORES, None, None) for host in range(full))]
    roster = roster_of(holds, vms)
    request = PlaceRequest("new", Demand(cores * 1000, 1))
    before = roster.fleet.hosts.arrays.headroom.copy()
    found = find_living(roster, request, Life(until), explain=False).answer
    fits = [n for n in range(4) if room(n, holds, vms, until, None) >= cores]
    assert (found is None) == (not fits)
    if isinstance(found, Placement):
        load = roster.fleet.hosts.arrays.committed[:, 0]
        # Room that is nobody's comes before what is another's later.
        fits = [n for n in fits if room(n, holds, vms, None, None) >= cores] or fits
        assert found.host_row == min(fits, key=lambda n: (load[n], n))
    assert (roster.fleet.hosts.arrays.headroom == before).all()


@given(_holds, _vms, st.integers(1, CORES), st.integers(NOW + 1, LAST), st.integers(0, 3))
def test_a_vm_that_ends_goes_where_there_is_room_for_its_life(
    holds: Drawn, vms: Placed, cores: int, until: int, full: int
) -> None:
    decide(holds, vms, cores, until, full)


@given(_holds, _vms, st.integers(1, CORES), _until)
def test_an_owner_goes_where_its_reservation_leaves_it_room(
    holds: Drawn, vms: Placed, cores: int, until: int | None
) -> None:
    roster = roster_of(holds, vms)
    request = PlaceRequest("new", Demand(cores * 1000, 1))
    found, draws_on = find_living(roster, request, Life(until, ("r",)), explain=False)
    if isinstance(found, Placement):
        assert room(found.host_row, holds, vms, until, draws_on) >= cores
    else:
        assert all(room(n, holds, vms, until, None) < cores for n in range(4))


def test_a_decision_that_sees_no_more_room_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holdings, "may_hold_less", lambda *given: False)

    @settings(phases=[Phase.generate], database=None)
    @given(_holds, _vms, st.integers(1, CORES), st.integers(NOW + 1, LAST))
    def law(holds: Drawn, vms: Placed, cores: int, until: int) -> None:
        on_one = [(3, cores, *rest) for _, cores, *rest in holds]
        decide(on_one, vms, cores, until, full=3)  # type: ignore[arg-type]

    with pytest.raises(AssertionError):
        law()
