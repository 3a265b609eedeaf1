"""Whether the rule of a group holds for its members where they are. Pure.

    rule            holds when
    affinity        all members are in one domain
    anti-affinity   no two members are in one domain
    spread          no domain has more than max_skew members more than another

A domain is a host, a rack or a zone; a host whose rack or zone is unknown is in no domain of
the others, so only rules that ask for one are broken by it. That a
spread is even is asked for when a member is placed, and lost by what is deleted later: so it is
told apart (`uneven`) from what may never be (`broken`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """Where a member is; one that moves has two. `domain` is empty when it is unknown."""

    vm: str
    host: str
    domain: str


class Rule(NamedTuple):
    """What a group asks of its members."""

    rule: str
    scope: str
    max_skew: int = 1


def broken(asked: Rule, places: Sequence[Place]) -> list[str]:
    """Say by which members the rule is broken, each with its host."""
    found = [
        f"VM {place.vm!r} is on host {place.host!r}, whose {asked.scope} is unknown"
        for place in places
        if not place.domain and asked.rule != "anti-affinity"  # nobody is seen to share it
    ]
    by_domain: dict[str, dict[str, str]] = defaultdict(dict)  # VM -> host
    for place in places:
        if place.domain:
            by_domain[place.domain].setdefault(place.vm, place.host)
    if asked.rule == "anti-affinity":
        for domain, there in by_domain.items():
            if len(there) > 1:
                found.append(f"{_listed(there)} share the {asked.scope} {domain!r}")
    elif asked.rule == "affinity" and len(by_domain) > 1:
        most = max(by_domain, key=lambda domain: len(by_domain[domain]))
        for domain, there in by_domain.items():
            if domain != most:
                other = f"and not in {most!r}, where {len(by_domain[most])} others are"
                found.append(f"{_listed(there)} is in the {asked.scope} {domain!r}, {other}")
    return found


def uneven(asked: Rule, places: Iterable[Place], domains: Iterable[str]) -> str:
    """Say by how much the members of a spread group differ between domains; empty if they may."""
    if asked.rule != "spread":
        return ""
    counted = Counter(dict.fromkeys((domain for domain in domains if domain), 0))
    counted.update(place.domain for place in places if place.domain)
    if not counted:
        return ""
    (most, many), (least, few) = counted.most_common()[0], counted.most_common()[-1]
    if many - few <= asked.max_skew:
        return ""
    return (
        f"the {asked.scope} {most!r} has {many} members and {least!r} has {few}: "
        f"{many - few} apart, {asked.max_skew} is asked for"
    )


#: VMs that one sentence names.
_MOST_NAMED = 5


def _listed(there: dict[str, str]) -> str:
    named = [f"VM {vm!r} on host {host!r}" for vm, host in list(there.items())[:_MOST_NAMED]]
    more = len(there) - len(named)
    return ", ".join([*named, f"{more} more"] if more > 0 else named)
