"""Two releases of roost side by side on one PostgreSQL: an earlier one, and this.

The older one, of before specs were stored or of a late schema, is taken from the repository's
history and runs in the same interpreter, found before the installed one. It has made the ledger and
goes on while this release migrates it, and both are asked for everything that users ask for. A
SQLite file has one process, so there is no such test.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from roost.base.errors import Conflict
from roost.client import Client
from roost.parts.singleton import GATE, HOLDER
from roost.wire.agentlink import Desired
from roost.wire.bodies import BootBody, ConstraintsBody, CreateVM, EventBody, VMBody
from tests.databases import PostgresServer
from tests.system.history import older_site
from tests.system.processes import (
    Hosts,
    Server,
    Site,
    all_settled,
    assert_healthy,
    eventually,
    examine,
    small,
)
from tests.turns import in_turn

pytestmark = pytest.mark.slow

#: The last commit whose ledger has bodies (schema 0003).
OLDER = "ec9856d"
#: One that knows all but what came last (schema 0026).
LATE = "82b8465"
#: What they say on a ledger that a later release has migrated.
REFUSALS = {
    OLDER: "Can't locate revision identified by",
    LATE: "a later release has migrated it",
}


@pytest.fixture(params=[OLDER])
def older(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Give a test a site in the same folder, whose processes are of the release before."""
    made = older_site(tmp_path, request.param)
    try:
        yield made
    finally:
        made.end()


def on(host: str, name: str, user_data: str = "", **more: Any) -> CreateVM:
    """Return a small VM for one host."""
    boot = BootBody(user_data=user_data) if user_data else None
    return small(name, constraints=ConstraintsBody(hosts=[host]), boot=boot, **more)


def told(agent: Hosts, vm: VMBody) -> str | None:
    """Return the user data that an agent was given of a VM; None while it has not heard of it."""
    path = agent.folder / "desired.json"
    listed = msgspec.json.decode(path.read_bytes(), type=Desired).vms if path.exists() else []
    for entry in listed:
        if entry.id == vm.id:
            return entry.boot.user_data if entry.boot is not None else ""
    return None


def wait_told(agent: Hosts, vm: VMBody, secret: str) -> None:
    """Wait until an agent was given a VM's user data."""
    eventually(f"{agent.name} is told of {vm.name}", lambda: told(agent, vm) == secret)


def in_state(client: Client, vm: VMBody, state: str, host: str | None = None) -> None:
    """Wait until a VM is in a state, on a host."""

    def there() -> bool:
        found = client.get_vm(vm.id)
        return found.state == state and host in (None, found.host)

    eventually(f"{vm.name} is {state} on {host or 'any host'}", there)


def begin_move(client: Client, vm: VMBody, target: str) -> None:
    """Ask for a move as soon as the host of the move before has cleaned up."""

    def begun() -> bool:
        with suppress(Conflict):
            client.migrate_vm(vm.id, host=target)
            return True
        return False

    eventually(f"{vm.name} can be moved to {target}", begun)


def assert_quiet(*servers: Server) -> None:
    """Demand that nobody had to complain."""
    for server in servers:
        lines = server.log().splitlines()
        loud = [line for line in lines if "[ERROR]" in line or "Traceback" in line]
        assert not loud, f"{server.name}: {loud[:5]}"


class Both:
    """The two releases side by side, one agent connected to each, and one of the older release."""

    def __init__(self, older: Site, site: Site, url: str) -> None:
        self.made: dict[str, VMBody] = {}
        self.before = older.serve("before", database=url)
        self.agents = {"here": site.hosts("here", self.before, max_destroy=100)}
        with older.client(self.before) as client:
            self.create(client, on("here", "first"))
            self.create(client, on("here", "first-secret", "of the first"))
            self.create(client, on("here", "first-gone"))
            all_settled(client)
        self.after = site.serve("after", database=url)  # migrates while the other runs
        self.agents["there"] = site.hosts("there", self.after, max_destroy=100)
        self.agents["elder"] = older.hosts("elder", self.after, max_destroy=100)
        self.old, self.new = older.client(self.before), site.client(self.after)
        self.turns = ((self.old, self.new), (self.new, self.old))

    def create(self, client: Client, vm: CreateVM) -> VMBody:
        """Create a VM that is expected to be there in the end."""
        found = client.create_vm(vm)
        self.made[found.id] = found
        return found

    def delete(self, client: Client, name: str) -> None:
        """Delete a VM by name."""
        vm = next(vm for vm in self.made.values() if vm.name == name)
        client.delete_vm(vm.id)
        del self.made[vm.id]

    def create_everywhere(self) -> None:
        """Let each create on every host: some agents are connected to it, some to the other."""
        for by, (client, other) in zip(("before", "after"), self.turns, strict=True):
            for host, agent in self.agents.items():
                secret = f"secret of {by} for {host}"
                vm = self.create(client, on(host, f"{by}-{host}", secret))
                in_state(other, vm, "running", host)
                wait_told(agent, vm, secret)
        assert all_settled(self.old).keys() == all_settled(self.new).keys() == self.made.keys()

    def stop_and_start(self) -> None:
        """Stop by one, start by the other, whoever created it."""
        for vm in self.made.values():
            for client, other in self.turns:
                client.stop_vm(vm.id)
                in_state(other, vm, "stopped")
                other.start_vm(vm.id)
                in_state(client, vm, "running")

    def move(self) -> None:
        """Move there and back, by each; what is moved keeps its user data."""
        for by, (creator, _) in zip(("before", "after"), self.turns, strict=True):
            secret = f"movable of {by}"
            vm = self.create(creator, small(f"movable-{by}", boot=BootBody(user_data=secret)))
            in_state(self.old, vm, "running")
            in_state(self.new, vm, "running")
            for target in ("here", "there", "elder"):
                for client, other in self.turns:
                    if client.get_vm(vm.id).host == target:
                        target = "there" if target == "here" else "here"
                    begin_move(client, vm, target)
                    for each in (other, client):
                        in_state(each, vm, "running", target)
                    wait_told(self.agents[target], vm, secret)

    def queue(self) -> None:
        """Let VMs wait for room: whoever acts for all places each of them, once."""
        self.create(self.old, on("there", "wide", cpu=14))
        waiting = {
            name: self.create(client, on("there", name, f"for {name}", cpu=14, on_no_fit="queue"))
            for name, client in (("waits-1", self.old), ("waits-2", self.new))
        }
        self.delete(self.new, "wide")
        for name, other in (("waits-1", self.new), ("waits-2", self.old)):
            in_state(other, waiting[name], "running", "there")
            wait_told(self.agents["there"], waiting[name], f"for {name}")
            self.delete(other, name)
        placed = [e.subject for e in all_events(self.new) if e.kind == "vm.placed"]
        assert sorted(placed) == sorted(f"vm/{vm.id}" for vm in waiting.values())

    def delete_some(self) -> None:
        """Delete by the one that did not create it, and by the one that did."""
        self.delete(self.new, "first-gone")
        self.delete(self.new, "before-here")
        self.delete(self.new, "after-elder")
        self.delete(self.old, "after-there")
        self.delete(self.old, "before-elder")
        for client in (self.old, self.new):
            eventually(
                "what was deleted is gone",
                lambda client=client: {vm.id for vm in client.all_vms()} == self.made.keys(),
            )
        homes = [{vm.id: vm.host for vm in all_settled(c).values()} for c in (self.old, self.new)]
        assert homes[0] == homes[1]


def all_events(client: Client) -> list[EventBody]:
    """Return every event."""
    found: list[EventBody] = []
    while page := client.list_events(since=found[-1].seq if found else 0, limit=500).events:
        found += page
    return found


@pytest.mark.parametrize(
    ("older", "refusal"), in_turn(list(REFUSALS.items()), 1), indirect=["older"]
)
def test_two_versions_do_everything_on_one_ledger(
    older: Site, refusal: str, site: Site, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    both = Both(older, site, url)
    before, after, new = both.before, both.after, both.new
    with both.old, both.new:
        both.create_everywhere()
        both.stop_and_start()
        both.move()
        both.queue()
        both.delete_some()
        report = new.doctor()
        assert_healthy(report)
        assert {note.check for note in report.notes} == {"upgrade"}
        assert "secret of" not in str(all_events(new)), "users are shown user data"

        assert before.stop() == 0
        assert_quiet(before, after)
        again = older.serve_again(before, ready=False)
        assert again.wait() != 0
        assert refusal in again.log()

        finished = site.roost("ledger", "finish-upgrade", "--server", after.url)
        assert finished.returncode == 0, finished.stderr
        late = both.create(new, on("there", "late", "of the last"))
        wait_told(both.agents["there"], late, "of the last")
        report = new.doctor()
        assert_healthy(report)
        assert report.notes == []
    assert after.stop() == 0
    assert_quiet(after)
    assert_healthy(asyncio.run(examine(url)))


class Holders:
    """Who holds which lease, read from the ledger behind everybody's back."""

    def __init__(self, url: str) -> None:
        self._url = url

    def now(self) -> dict[str, str]:
        """Return the holder of each lease."""
        return asyncio.run(self._read())

    async def _read(self) -> dict[str, str]:
        connection = await asyncpg.connect(self._url)
        try:
            rows = await connection.fetch("SELECT name, holder FROM leases")
        finally:
            await connection.close()
        return {row["name"]: row["holder"] for row in rows}

    def wait_for_gate(self, *, newer: bool) -> dict[str, str]:
        """Wait until a process of one release holds the lease for all that one process does."""

        def held() -> dict[str, str] | None:
            found = self.now()
            holder = found.get(GATE, "")
            return found if holder and holder.startswith(f"{HOLDER}-") is newer else None

        return eventually(f"{GATE!r} is held by the {'newer' if newer else 'older'} one", held)


def queue_is_served(client: Client, host: str, name: str) -> None:
    """Let a VM wait for room and make some: whoever holds the lease of the queue places it."""
    wide = client.create_vm(on(host, f"wide-{name}", cpu=14))
    waits = client.create_vm(on(host, f"waits-{name}", cpu=14, on_no_fit="queue"))
    assert waits.state == "pending"
    client.delete_vm(wide.id)
    in_state(client, waits, "running", host)
    client.delete_vm(waits.id)
    eventually(f"{waits.name} is gone", lambda: waits.id not in {vm.id for vm in client.all_vms()})


def test_what_one_process_does_is_handed_over_to_the_newer_release_and_back(
    older: Site, site: Site, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    holders = Holders(url)
    before = older.serve("before", database=url)
    site.hosts("here", before, max_destroy=100)
    after = site.serve("after", database=url)
    site.hosts("there", after, max_destroy=100)
    with older.client(before) as old, site.client(after) as new:
        assert holders.wait_for_gate(newer=False).keys() == {GATE}
        queue_is_served(new, "there", "first")
        assert holders.now().keys() == {GATE}, "the newer one acts beside the older"

        before.pause()  # as a machine that hangs
        taken = holders.wait_for_gate(newer=True)
        assert taken.keys() > {GATE}
        assert set(taken.values()) == {taken[GATE]}
        queue_is_served(new, "there", "second")

        before.resume()
        after.pause()
        holders.wait_for_gate(newer=False)
        site.wait_online(before, "here", 1)
        queue_is_served(old, "here", "third")

        after.resume()
        site.wait_online(after, "there", 1)
        queue_is_served(new, "there", "fourth")
        tokens = holders.now()
        assert not tokens[GATE].startswith(f"{HOLDER}-")
        # What the newer one had is worth nothing now, and it knows.
        assert_healthy(new.doctor())
        placed = [event.subject for event in all_events(new) if event.kind == "vm.placed"]
        assert len(placed) == len(set(placed)) == 4
    for server in (before, after):
        assert server.stop() == 0
        assert_quiet(server)
