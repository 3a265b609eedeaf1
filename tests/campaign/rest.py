"""Whether everything has come to rest: what is there against what is wanted. Pure.

While faults last, hosts and ledger may differ; once they have ended, all of this becomes empty
within a bound. What remains of it then is as wrong as a broken law.
"""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from tests.campaign.ending import AMOUNTS, Ending, Row


def unrest(ending: Ending) -> list[str]:
    """Return what is not as it is wanted yet, in words."""
    return [*_hosts_at_rest(ending), *_vms_at_rest(ending), *_leftovers(ending), *_waiting(ending)]


def _hosts_at_rest(ending: Ending) -> Iterator[str]:
    for host in ending.hosts:
        if host["health"] != "online" or host["fenced"] is not None:
            yield f"{host['name']} is {host['health']}, fenced: {host['fenced']}"
        ledger = ("online", *(host[f"{name}_committed"] for name in AMOUNTS))
        for plane, told in ending.told.items():
            said = told.get(host["name"])
            if said != ledger:
                yield f"{plane} says {said} of {host['name']}, the ledger {ledger}"


def _vms_at_rest(ending: Ending) -> Iterator[str]:
    copies: defaultdict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for copy in ending.copies:
        copies[copy.vm].append((copy.host, copy.state, copy.cpu_milli))
    for row in ending.vms:
        name, here = row["name"], copies.pop(row["id"], [])
        if row["desired"] == "absent":
            yield f"{name} is never gone"
            continue
        if row["phase"]:
            yield f"{name} is {row['phase']} for ever"
        if row["host_name"] is None:
            if here:
                yield f"{name} waits for a host and lies on {here}"
            continue
        seen = row["observed"], row["observed_generation"]
        if seen != (row["desired"], row["generation"]):
            yield f"{name} is {seen} and should be {row['desired'], row['generation']}"
        wanted = [(row["host_name"], row["desired"], row["cpu_milli"])]
        never_ran = row["desired"] == "stopped" and not here
        if here != wanted and not never_ran:
            yield f"{name} lies on {here} and should on {wanted}"
    for vm, here in copies.items():
        yield f"{vm} lies on {here} and is in no ledger"


def _leftovers(ending: Ending) -> Iterator[str]:
    vms = {row["id"]: row for row in ending.vms}
    for claim in ending.claims:
        vm = vms.get(claim["vm"])
        if claim["kind"] != "run":
            yield f"claim {claim['id']} is left over on {claim['host_name']}"
        elif vm is not None and any(claim[name] != vm[name] for name in AMOUNTS):
            yield f"claim {claim['id']} is not as large as its VM"
    for grave in ending.tombstones:
        yield f"the tombstone of {grave['vm']} on {grave['host_name']} is left over"


def _waiting(ending: Ending) -> Iterator[str]:
    """Whoever waits fits nowhere: there is no room, or somebody to be kept apart from."""
    free = {
        host["name"]: [host[f"{name}_capacity"] - host[f"{name}_committed"] for name in AMOUNTS]
        for host in ending.hosts
    }
    homes: defaultdict[str, set[str]] = defaultdict(set)  # of the members of a group
    for row in ending.vms:
        for group in _groups(row):
            homes[group].add(row["host_name"])
    for row in ending.vms:
        if row["host_name"] is not None or row["pending"] is None:
            continue
        taken = set().union(*(homes[group] for group in _groups(row)))
        for host, amounts in free.items():
            room = all(row[name] <= left for name, left in zip(AMOUNTS, amounts, strict=True))
            if room and host not in taken:
                yield f"{row['name']} waits, and fits on {host}"
                break


def _groups(row: Row) -> list[str]:
    return [group["name"] for group in msgspec.json.decode(row["spec"]).get("groups", [])]
