"""The law of reservations, by arithmetic of its own: no moment is promised more than a host has.

At every moment from now on, the claims that live then and what is left then of each reservation are
within the host's capacity, of each device too; and a hold goes only with its reservation, or with
its host. A claim whose end has passed is left out: its VM is being destroyed, and its room is
promised to nobody.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

#: Later than any moment.
_NEVER = 2**62


class Hold(Struct, gc=False):
    """What the law needs of a hold's row."""

    host: int
    kind: str
    owner: str
    windows: str
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    vms: int
    counters: str | None = None


class Promise(Struct, gc=False):
    """A claim, or a hold, as numbers: how much, when, and whose."""

    host: int
    amounts: tuple[int, ...]
    times: tuple[tuple[int, int], ...]
    owner: str | None
    reserved: bool = False
    counters: dict[str, int] = {}


class _ByHost:
    """Promises by their keys, and those of each host: a commit changes few hosts of many."""

    def __init__(self) -> None:
        self.by_key: dict[str, Promise] = {}
        self._of_host: dict[int, dict[str, Promise]] = defaultdict(dict)

    def put(self, key: str, promise: Promise) -> None:
        """Take a promise in place of the one of that key."""
        self.drop(key)
        self.by_key[key] = self._of_host[promise.host][key] = promise

    def drop(self, key: str) -> None:
        """Take the promise of a key out, if there is one."""
        if (before := self.by_key.pop(key, None)) is not None:
            del self._of_host[before.host][key]

    def on(self, host: int) -> list[Promise]:
        """Return the promises of a host."""
        return list(self._of_host[host].values()) if host in self._of_host else []


#: What a device has: the hosts of simulated worlds have no other counters.
_DEVICE = 1000
_counters = msgspec.json.Decoder(dict[str, int]).decode
_windows = msgspec.json.Decoder(list[tuple[int, int | None]]).decode


class ReservedRoom:
    """Holds and claims by host, and the greatest load of each host so far."""

    def __init__(self) -> None:
        self._holds = _ByHost()
        self._claims = _ByHost()
        #: What hosts that changed in this commit had promised before it, and who took on something.
        self._before: dict[int, list[int]] = {}
        self._grown: dict[int, list[int]] = {}

    def put_hold(self, kind: str, key: str, hold: Hold | None) -> str:
        """Take over a hold's row; return what is wrong with its going, or nothing."""
        before = self._holds.by_key.get(key)
        if before is not None:
            self._note(before.host, touched=False)
        if hold is None:
            self._holds.drop(key)
            of_reservation = before is not None and before.reserved
            may_go = kind.startswith(("reservation.", "host.removed"))
            return "" if may_go or not of_reservation else f"the hold {key} is gone by {kind}"
        self._note(hold.host)
        amounts = (hold.cpu_milli, hold.memory_bytes, hold.disk_bytes, hold.vms)
        times = tuple((a, _NEVER if b is None else b) for a, b in _windows(hold.windows))
        counted = _counters(hold.counters) if hold.counters else {}
        reserved = hold.kind == "reservation"
        self._holds.put(key, Promise(hold.host, amounts, times, hold.owner, reserved, counted))
        return ""

    def put_claim(
        self,
        key: str,
        host: int | None,
        amounts: tuple[int, ...] = (),
        until_ms: int | None = None,
        draws_on: str | None = None,
        counters: str = "",
    ) -> None:
        """Take over a claim's row; without a host it is gone."""
        before = self._claims.by_key.get(key)
        if before is not None:
            self._note(before.host, touched=False)
        if host is None:
            self._claims.drop(key)
            return
        if before is None or before.host != host or before.amounts != amounts:
            self._note(host)
        times = ((0, _NEVER if until_ms is None else until_ms),)
        counted = _counters(counters) if counters else {}
        self._claims.put(key, Promise(host, amounts, times, draws_on, counters=counted))

    def _note(self, host: int, *, touched: bool = True) -> None:
        """Keep what a host had promised before the first change of this commit."""
        if host not in self._before:
            self._before[host] = self._promised(host)
        if touched:
            self._grown[host] = self._before[host]

    def _promised(self, host: int) -> list[int]:
        here = [*self._claims.on(host), *self._holds.on(host)]
        return [sum(each.amounts[axis] for each in here) for axis in range(4)]

    def broken(self, now_ms: int, capacities: Mapping[int, Sequence[int]]) -> str:
        """Return which host has promised more than it has at some moment; empty when none has.

        Only hosts that took on something, and that hold something, are looked at. A host that was
        made smaller than its promises may exchange one for another, and take on nothing more.
        """
        grown, self._grown, self._before = self._grown, {}, {}
        for host, before in grown.items():
            capacity = capacities.get(host)
            if capacity is None or not self._holds.on(host):
                continue
            if wrong := self._promised_twice(host, now_ms):
                return wrong
            after = self._promised(host)
            was_over = any(had > most for had, most in zip(before, capacity, strict=False))
            if was_over and all(a <= b for a, b in zip(after, before, strict=True)):
                continue
            holds, claims = self._holds.on(host), self._claims.on(host)
            moments = {now_ms, *(start for each in holds for start, _ in each.times)}
            for at in sorted(moment for moment in moments if moment >= now_ms):
                load = _load(holds, claims, at)
                for axis, most in enumerate(capacity):
                    held = sum(each.amounts[axis] for each in holds)
                    if held and load[axis] > most:
                        return f"host {host} promises {load[axis]} of {most} at {at - now_ms} ms"
        return ""

    def _promised_twice(self, host: int, now_ms: int) -> str:
        """Return which device of a host has more promised than it has at some moment."""
        holds, claims = self._holds.on(host), self._claims.on(host)
        moments = {now_ms, *(start for each in holds for start, _ in each.times)}
        for device in sorted({name for each in holds for name in each.counters}):
            for at in sorted(moment for moment in moments if moment >= now_ms):
                load = _load(_only(holds, device), _only(claims, device), at)[0]
                if load > _DEVICE:
                    return f"host {host} promises {load} of {device} at {at - now_ms} ms"
        return ""


def _only(promises: Sequence[Promise], counter: str) -> list[Promise]:
    """Return promises with the amount of a counter in place of all others."""
    return [
        msgspec.structs.replace(each, amounts=(each.counters.get(counter, 0), 0, 0, 0))
        for each in promises
    ]


def _load(holds: Sequence[Promise], claims: Sequence[Promise], at: int) -> list[int]:
    """Return what is promised at a moment."""
    alive = [each for each in claims if at < each.times[0][1]]
    load = [sum(each.amounts[axis] for each in alive) for axis in range(4)]
    kept: dict[str | None, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for hold in holds:
        if any(start <= at < stop for start, stop in hold.times):
            kept[hold.owner] = [a + b for a, b in zip(kept[hold.owner], hold.amounts, strict=True)]
    for owner, amounts in kept.items():
        for axis, amount in enumerate(amounts):
            drawn = sum(each.amounts[axis] for each in alive if each.owner == owner)
            load[axis] += max(0, amount - drawn)
    return load
