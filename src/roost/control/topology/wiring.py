"""Tell the engine of the network: distances between hosts, and whose uplinks are saturated.

Distances are made of the declared network alone; loads of links also of what VMs send each other
by the traffic matrix, where they are now. Both are made in a thread and put in place between two
decisions.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from roost.control.memory.roster import Roster
from roost.control.memory.talkers import GROUP
from roost.ledger.claims.capacity import RUN, claim_id
from roost.placement.nearness import HostNetwork
from roost.topology.distances import Distances, Flow, LinkLoads, behind
from roost.topology.network import Network

#: Flows between hosts that loads are made of: the largest.
MOST_FLOWS = 20_000

#: VMs of both ends of a pair by host, and what each of one end sends each of the other, in kbit/s.
End = tuple[Counter[str], Counter[str], int]


@dataclass(frozen=True, slots=True)
class Loads:
    """One network's distances, and what its links carry."""

    distances: Distances
    links: LinkLoads
    behind: frozenset[str]


class Wiring:
    """Keeps what the engine knows of the network up to date."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._of: Network | None = None
        self.loads: Loads | None = None

    def flows(self) -> list[Flow]:
        """Return what hosts send each other by the traffic matrix, the most first."""
        return summed(self._ends())

    def _ends(self) -> list[End]:
        """Return for every pair where its VMs are: a group may have many on one host."""
        talkers, fleet = self._roster.talkers, self._roster.fleet
        groups: dict[str, list[str]] | None = None
        known: dict[str, Counter[str]] = {}

        def hosts_of(ref: str) -> Counter[str]:
            nonlocal groups
            if (found := known.get(ref)) is None:
                if ref.startswith(GROUP):
                    if groups is None:
                        groups = talkers.by_group()
                    vms = groups.get(ref.removeprefix(GROUP), [])
                else:
                    vms = talkers.vm_of(ref)
                numbers = [fleet.vms.numbers.get(claim_id(vm, RUN)) for vm in vms]
                rows = [int(fleet.vms.host[n]) for n in numbers if n is not None]
                found = known[ref] = Counter(fleet.hosts.names[row] for row in rows)
            return found

        declared = [
            (hosts_of(one), hosts_of(other), kbit)
            for one, others in talkers.pairs.items()
            for other, kbit in others.items()
            if one < other
        ]
        learnt = [(hosts_of(a), hosts_of(b), kbit) for a, b, kbit in talkers.undeclared()]
        return declared + learnt

    def put(self, network: Network | None) -> None:
        """Make what is known of a network, and tell the engine; for one who may wait."""
        self._place(network, None if network is None else self._made(network, self.flows()))

    async def refresh(self, network: Network | None) -> None:
        """Do the same beside others: only the last step is taken between two decisions."""
        ends = self._ends() if network is not None else []
        made = None
        if network is not None:
            made = await asyncio.to_thread(lambda: self._made(network, summed(ends)))
        self._place(network, made)

    def _made(self, network: Network, flows: list[Flow]) -> Loads:
        known = self.loads.distances if self.loads is not None and self._of is network else None
        distances = known or Distances(network)
        links = LinkLoads(distances, flows)
        return Loads(distances, links, behind(distances, links.saturated()))

    def _place(self, network: Network | None, made: Loads | None) -> None:
        self._of, self.loads = network, made
        engine, now = self._roster.engine, engine_network(made)
        before = engine.network
        same = (
            before is not None
            and now is not None
            and before.distances is now.distances
            and before.saturated == now.saturated
        )
        if not same and before is not now:
            engine.set_network(now)
            self._roster.room += 1  # who was too far may be near now


def summed(ends: Iterable[End]) -> list[Flow]:
    """Return the largest flows between hosts of pairs: of groups each member talks with each."""
    sums: dict[tuple[str, str], int] = {}
    for here, there, kbit in ends:
        for a, many in here.items():
            for b, more in there.items():
                if a != b:
                    key = (a, b) if a <= b else (b, a)
                    sums[key] = sums.get(key, 0) + kbit * many * more
    most = sorted(sums.items(), key=lambda each: (-each[1], each[0]))
    return [Flow(*hosts, kbit) for hosts, kbit in most[:MOST_FLOWS]]


def engine_network(made: Loads | None) -> HostNetwork | None:
    """Return what the engine is told."""
    return None if made is None else HostNetwork(made.distances, made.behind)
