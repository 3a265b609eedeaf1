"""Take past requests again, on two copies of the fleet: under a policy as it is, and as it may be.

Pure but for the worlds that it is given, which it changes. VMs of the record are taken out of both
worlds first; then creates are placed and ends are carried out in the order in which they came, by
the same engine, so that the only difference is the policy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roost.control.policies.recorded import Recorded
from roost.model.flow import PlaceRequest
from roost.placement.batching import columns_of
from roost.placement.engine import seed_of
from roost.placement.whatif import WhatIf

#: Refusals that are explained; the others are only counted.
_MOST_EXPLAINED = 20


@dataclass(frozen=True, slots=True)
class Changed:
    """A request that is answered differently; an empty host is a refusal, which `why` explains."""

    vm: str
    request: PlaceRequest
    before: str
    after: str
    why: str = ""


def take_out(world: WhatIf, record: Sequence[Recorded]) -> None:
    """Remove from a world the VMs that the record will bring again."""
    numbers, remove = world.fleet.vms.numbers, world.fleet.remove
    for each in record:
        if each.request is not None:
            world.fleet.discount_vm(each.request.key)
            if (number := numbers.get(each.request.key)) is not None:
                remove(number)


class _Replay:
    """One world in which a record is carried out; the rows of hosts, -1 where none fits."""

    def __init__(self, world: WhatIf, requests: Sequence[PlaceRequest]) -> None:
        self._world, self._requests = world, requests
        self._strategies = [world.strategy_of(each) for each in requests]
        self._restless = [world.is_restless(each) for each in requests]
        draws = any(each.draws for each in self._strategies)
        seeds = [seed_of(each) for each in requests] if draws else []
        self._columns = columns_of(world.fleet, requests, seeds, world.terms_number)
        self.rows = [-1] * len(requests)
        self._numbers = [-1] * len(requests)  # of the VMs in the world's fleet
        self.reasons: dict[int, str] = {}
        self._done = 0

    def place_until(self, end: int) -> None:
        """Place the requests up to here, those that go together in one call."""
        while self._done < end:
            start = self._done
            stop = start + 1
            if self._restless[start]:
                self._place_one(start)
            else:
                strategy = self._strategies[start]
                while (
                    stop < end and not self._restless[stop] and self._strategies[stop] is strategy
                ):
                    stop += 1
                self._place_run(start, stop)
            self._done = stop

    def _place_one(self, at: int) -> None:
        row = self._world.place_copy(self._requests[at])
        if row < 0:
            self._explain(at)
            return
        self.rows[at], self._numbers[at] = row, self._world.fleet.vms.count - 1

    def _place_run(self, start: int, stop: int) -> None:
        found = self._world.place_columns(self._columns.part(start, stop), self._strategies[start])
        number = found.first_vm
        for at, row in enumerate(found.row.tolist(), start):
            self.rows[at] = row
            if row < 0:
                self._explain(at)
            else:
                self._numbers[at] = number
                self._world.count(self._requests[at])
                number += 1

    def _explain(self, at: int) -> None:
        if len(self.reasons) < _MOST_EXPLAINED:
            self.reasons[at] = self._world.reject(self._requests[at]).message

    def remove(self, at: int) -> None:
        """Take out again the VM of a request, if it has a host."""
        if self._numbers[at] >= 0:
            self._world.fleet.remove(self._numbers[at])
        self._world.fleet.discount_vm(self._requests[at].key)


def replay(
    world: WhatIf,
    record: Sequence[Recorded],
    asked: Callable[[PlaceRequest], PlaceRequest],
) -> tuple[list[str], dict[int, str]]:
    """Carry out a record; return the host of each request, and why some of those have none.

    `asked` says what a request is in this world.
    """
    requests = [asked(each.request) for each in record if each.request is not None]
    run, at, count = _Replay(world, requests), {}, 0
    for each in record:
        if each.request is not None:
            at[each.vm] = count
            count += 1
        else:
            run.place_until(count)
            run.remove(at[each.vm])
    run.place_until(count)
    names = world.fleet.hosts.names
    return [names[row] if row >= 0 else "" for row in run.rows], run.reasons


def compare(
    before: WhatIf,
    after: WhatIf,
    record: Sequence[Recorded],
    asked_before: Callable[[PlaceRequest], PlaceRequest],
    asked_after: Callable[[PlaceRequest], PlaceRequest],
) -> list[Changed]:
    """Return the requests that the two worlds answer differently, in the order of the record."""
    one, _ = replay(before, record, asked_before)
    other, reasons = replay(after, record, asked_after)
    asked = [each for each in record if each.request is not None]
    return [
        Changed(each.vm, each.request, one[at], other[at], reasons.get(at, ""))
        for at, each in enumerate(asked)
        if each.request is not None and one[at] != other[at]
    ]
