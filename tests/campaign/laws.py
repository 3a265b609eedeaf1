"""The judge of a run: what was promised against what is there. Pure: records in, words out.

A request that is `unknown` may have been done, may be done yet, or never: the laws allow all three,
and nothing else. Sums are made here anew, from rows alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.campaign.ending import AMOUNTS, Ending, Row
from tests.campaign.history import History, Request

#: What a client may be refused with; anything else is a mistake of the server.
REFUSALS = {
    "create": {"conflict", "quota_exceeded", "insufficient_resources", "constraints_unsatisfied",
               "no_available_agents"},
    "delete": {"not_found", "conflict"},
    "read": {"not_found"},
    "list": set(),
    "doctor": set(),
}  # fmt: skip
REFUSALS["batch"] = REFUSALS["create"]
for _what in ("start", "stop", "resize", "migrate"):
    REFUSALS[_what] = REFUSALS["create"] | {"not_found"}

_POWER = {"start": "running", "stop": "stopped"}


def violations(history: History, ending: Ending) -> list[str]:
    """Return every law that is broken, in words."""
    asked = Asked(history)
    return [
        *_answers(history),
        *_keys(asked),
        *_existence(asked, ending),
        *_visibility(asked),
        *_last_words(asked, ending),
        *_apart(asked, ending),
        *_promises(ending),
        *_quotas(ending),
        *_events(ending),
    ]


class Asked:
    """The history by name, by id and by key."""

    def __init__(self, history: History) -> None:
        self.requests = sorted(history.requests, key=lambda request: request.began)
        self.makers: defaultdict[str, list[Request]] = defaultdict(list)  # by name
        self.by_key: defaultdict[str, list[Request]] = defaultdict(list)
        self.about: defaultdict[str, list[Request]] = defaultdict(list)  # by id
        self.accepted: dict[str, str] = {}  # id -> name
        self.accepted_at: dict[str, float] = {}  # id -> when somebody was first told of it
        for request in self.requests:
            if request.vm:
                self.about[request.vm].append(request)
            if not request.key:
                continue
            self.by_key[request.key].append(request)
            for name in request.names:
                self.makers[name].append(request)
            for name, vm in zip(request.names, request.ids, strict=False):
                if vm:
                    self.accepted.setdefault(vm, name)
                    before = self.accepted_at.get(vm, request.ended)
                    self.accepted_at[vm] = min(before, request.ended)

    def may_be_made(self, name: str) -> bool:
        """Say whether a VM of this name was promised, or is in doubt."""
        return any(
            request.answer == "unknown" or _told(request, name) for request in self.makers[name]
        )

    def deletes(self, vm: str) -> list[Request]:
        """Return the deletes of a VM that were not refused."""
        return [r for r in self.about[vm] if r.what == "delete" and r.answer != "refused"]

    def delete_asked_before(self, vm: str, when: float) -> bool:
        """Say whether anybody had asked to delete a VM by then."""
        return any(r.began <= when for r in self.about[vm] if r.what == "delete")


def _told(request: Request, name: str) -> str:
    """Return the id that an answer gave to a name, or nothing."""
    ids = dict(zip(request.names, request.ids, strict=False))
    return ids.get(name, "")


# What clients were told


def _answers(history: History) -> Iterator[str]:
    """No server says that it or its ledger is broken, or refuses for no reason."""
    for request in history.requests:
        if request.what == "doctor":
            yield from (f"at {request.began:.2f} s the doctor found {it}" for it in request.ids)
        if request.answer == "refused" and request.code not in REFUSALS[request.what]:
            subject = request.vm or ",".join(request.names)
            yield (
                f"{request.what} {subject} at {request.began:.2f} s was refused: "
                f"{request.code} {request.message}"
            )


def _keys(asked: Asked) -> Iterator[str]:
    """One key makes each VM once, and its answer does not change."""
    for key, requests in asked.by_key.items():
        for name in requests[0].names:
            ids = {vm for request in requests if (vm := _told(request, name))}
            if len(ids) > 1:
                yield f"{key} made {name} more than once: {', '.join(sorted(ids))}"
            yield from _taken_back(asked, name, requests)
            deleted = any(asked.about[vm] and asked.deletes(vm) for vm in ids)
            if not deleted and any(request.code == "conflict" for request in requests):
                yield f"{key} stands in its own way: {name} was refused with a conflict"


def _taken_back(asked: Asked, name: str, requests: Sequence[Request]) -> Iterator[str]:
    """Once a key was accepted it is not refused, unless what it made was deleted."""
    given = [(r.ended, vm) for r in requests if (vm := _told(r, name))]
    if not given:
        return
    accepted_at, vm = min(given)
    for request in requests:
        refused = request.answer != "unknown" and not _told(request, name)
        later = request.began > accepted_at
        if refused and later and not asked.delete_asked_before(vm, request.ended):
            yield f"{name} was accepted as {vm} and refused afterwards: {request.code}"


def _existence(asked: Asked, ending: Ending) -> Iterator[str]:
    """What was promised exists until its delete; nothing exists that nobody asked for."""
    rows = {row["id"]: row for row in ending.vms}
    for vm, name in asked.accepted.items():
        deletes = asked.deletes(vm)
        if vm not in rows and not deletes:
            yield f"{name} was accepted as {vm} and is lost"
        if vm in rows and any(request.answer == "ok" for request in deletes):
            yield f"{name} ({vm}) was deleted and is there"
    names = Counter((row["project"], row["name"]) for row in ending.vms)
    for (project, name), number in names.items():
        if number > 1:
            yield f"{number} VMs are called {project}/{name}"
    ids_by_name = {name: vm for vm, name in asked.accepted.items()}
    for row in ending.vms:
        name = row["name"]
        if not asked.may_be_made(name):
            yield f"{name} ({row['id']}) exists, and nobody was promised it"
        elif ids_by_name.get(name, row["id"]) != row["id"]:
            yield f"{name} was accepted as {ids_by_name[name]} and exists as {row['id']}"
    for request in asked.requests:
        if request.atomic and request.answer == "unknown" and request.key:
            yield from _all_or_none(request, asked, names)


def _all_or_none(
    request: Request, asked: Asked, names: Mapping[tuple[str, str], int]
) -> Iterator[str]:
    """An atomic batch in doubt exists whole or not at all, as long as nobody deletes of it."""
    if any(each.answer == "ok" for each in asked.by_key[request.key]):
        return
    there = [name for name in request.names if names.get((request.project, name))]
    if there and len(there) < len(request.names):
        yield f"of the atomic batch {request.key} only {', '.join(there)} exist"


def _visibility(asked: Asked) -> Iterator[str]:
    """Whoever reads after a create was answered finds it, at every control plane."""
    for request in asked.requests:
        lost = request.vm if request.code == "not_found" else ""
        if lost and not asked.delete_asked_before(lost, request.ended):
            yield f"{request.what} of {lost} at {request.began:.2f} s did not find it"
    lists = [r for r in asked.requests if r.what == "list" and r.answer == "ok"]
    for request in lists:
        seen = set(request.ids)
        for vm, at in asked.accepted_at.items():
            missing = at <= request.began and vm not in seen
            if missing and not asked.delete_asked_before(vm, request.ended):
                yield f"the list at {request.began:.2f} s lacks {vm}, told at {at:.2f} s"


def _last_words(asked: Asked, ending: Ending) -> Iterator[str]:
    """What was ordered last is what is wanted: power and size."""
    for row in ending.vms:
        if row["desired"] == "absent":
            continue
        made = asked.makers[row["name"]]
        wishes = [(r.ended, r.began, r.answer, _POWER[r.what]) for r in asked.about[row["id"]]
                  if r.what in _POWER]  # fmt: skip
        yield from _register(row, "desired", "running", wishes)
        sizes = [(r.ended, r.began, r.answer, r.cpu_milli) for r in asked.about[row["id"]]
                 if r.what == "resize"]  # fmt: skip
        if made:
            yield from _register(row, "cpu_milli", made[0].cpu_milli, sizes)


def _register(
    row: Row, column: str, first: object, writes: list[tuple[float, float, str, object]]
) -> Iterator[str]:
    """A value is one that may have been written last: none that was answered began after it."""
    done = [began for _, began, answer, _ in writes if answer == "ok"]
    last = max(done, default=0.0)
    possible = {
        value
        for ended, _, answer, value in writes
        if answer == "unknown" or (answer == "ok" and ended >= last)
    }
    if not done:
        possible.add(first)
    if row[column] not in possible:
        yield f"{row['name']} has {column} {row[column]}; ordered last was {possible}"


def _apart(asked: Asked, ending: Ending) -> Iterator[str]:
    """No two VMs that were to be kept apart share a host."""
    homes: Counter[tuple[str, str]] = Counter()
    for row in ending.vms:
        made = asked.makers[row["name"]]
        if made and made[0].group and row["host_name"] is not None:
            homes[made[0].group, row["host_name"]] += 1
    for (group, host), number in homes.items():
        if number > 1:
            yield f"{number} members of {group} are on {host}"


# What the ledger holds


def _promises(ending: Ending) -> Iterator[str]:
    """What a host has promised is the sum of its claims, and it has that much."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for claim in ending.claims:
        for name in AMOUNTS:
            sums[claim["host_name"]][name] += claim[name]
        sums[claim["host_name"]]["vms"] += 1
    for host in ending.hosts:
        for name in (*AMOUNTS, "vms"):
            committed, capacity = host[f"{name}_committed"], host[f"{name}_capacity"]
            claimed = sums[host["name"]][name]
            if committed != claimed:
                yield f"{host['name']} has promised {committed} {name}, its claims are {claimed}"
            if committed > capacity:
                yield f"{host['name']} has promised {committed} {name} of {capacity}"
    vms = {row["id"]: row for row in ending.vms}
    runs = {claim["vm"]: claim for claim in ending.claims if claim["kind"] == "run"}
    for vm, claim in runs.items():
        if vm not in vms or vms[vm]["host_name"] != claim["host_name"]:
            yield f"claim {claim['id']} holds room on {claim['host_name']} for nobody"
    for vm, row in vms.items():
        if row["host_name"] is not None and vm not in runs:
            yield f"{row['name']} is on {row['host_name']} without a claim"


def _quotas(ending: Ending) -> Iterator[str]:
    """A project uses what its VMs ask for, and no more than it may."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in ending.vms:
        sums[row["project"]]["vms"] += 1
        for name in AMOUNTS:
            sums[row["project"]][name] += row[name]
    for project in ending.projects:
        for name in (*AMOUNTS, "vms"):
            used, quota = project[f"{name}_used"], project[f"{name}_quota"]
            asked = sums[project["name"]][name]
            if used != asked:
                yield f"project {project['name']} uses {used} {name}, its VMs ask for {asked}"
            if quota is not None and asked > quota:
                yield f"project {project['name']} has {asked} {name} of {quota}"


def _events(ending: Ending) -> Iterator[str]:
    """Events are numbered from one, without a gap."""
    for row in ending.events:
        number = row["number"]
        if (row["first"] or 1, row["last"] or 0, row["counter"]) != (1, number, number):
            yield f"{number} events are numbered {row['first']} to {row['last']}"
