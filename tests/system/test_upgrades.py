"""Upgrades from every schema that there was, made and left behind by the release of its time.

The older control plane is killed while VMs run, wait, lie stopped and move; its agents, of that
release too, go on and meet this one. Then everything must come to rest, and the doctor finds
nothing.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from roost.base.errors import RoostError
from roost.client import Client
from roost.wire.bodies import BootBody, DemandBody, GroupBody, VMBody
from roost.wire.reservations import CreateReservation
from tests.databases import PostgresServer
from tests.system.history import older_site
from tests.system.processes import Hosts, Site, assert_healthy, eventually, small
from tests.turns import in_turn

pytestmark = pytest.mark.slow


class Release(NamedTuple):
    """A commit, and the schema that its ledgers have."""

    commit: str
    schema: str
    first: bool = False  # VMs have no user data, and a target that has a VM does not say so


#: A late commit of each schema; 0003 was changed after it was first used.
RELEASES = (
    Release("16b40f9", "0001", first=True),
    Release("f198444", "0002"),
    Release("ce01a55", "0003 without conversations"),
    Release("bb2dedc", "0003"),
    Release("7ea2681", "0004"),
    Release("21249f4", "0005"),
    Release("f084d91", "0006"),
    Release("fd89eba", "0007"),
    Release("5c77b25", "0008"),
    Release("5f253f6", "0009"),
    Release("6bfc924", "0010"),
    Release("f4219ce", "0017"),
    Release("92af535", "0018"),
    Release("39a7a39", "0019"),
    Release("bb5636f", "0020"),
    Release("ee3ccc1", "0021"),
    Release("cba435c", "0022"),
    Release("bca8a4f", "0023"),
    Release("aabdb14", "0024"),
    Release("774449f", "0025"),
    Release("82b8465", "0026"),
)
#: Schemas that no process has had at the end of a commit of main: each came with the next one.
NEVER_ALONE = frozenset(f"{number:04d}" for number in (*range(11, 17), *range(27, 30)))
GROUP = GroupBody(name="g", rule="anti-affinity")
SECRET = "what the first VM was given"


#: Each time the first schema, for it has the most to change, and the last; the others take turns.
TRIED = (RELEASES[0], *in_turn(RELEASES[1:-1], 2), RELEASES[-1])


@pytest.fixture(params=TRIED, ids=lambda release: release.schema.replace(" ", "-"))
def release(request: pytest.FixtureRequest) -> Release:
    """Return an earlier release."""
    found: Release = request.param
    return found


@pytest.fixture
def older(release: Release, tmp_path: Path) -> Iterator[Site]:
    """Give a test a site whose processes are of an earlier release."""
    made = older_site(tmp_path, release.commit)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> dict[str, object]:
    """Return the options that name a database: none, or one of PostgreSQL."""
    if request.param == "sqlite":
        return {}
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return {"database": postgres.new_database()}


def state(client: Client, vm: VMBody) -> str:
    """Return the state of a VM."""
    return client.get_vm(vm.id).state


def live(client: Client, boot: BootBody | None) -> dict[str, VMBody]:
    """Let VMs be in every state that lasts, and return them by name."""
    made = {
        vm.name: client.create_vm(vm)
        for vm in (
            small("runs", boot=boot),
            small("stops"),
            small("waits", cpu=500, on_no_fit="queue"),
            *(small(f"moves-{n}", groups=[GROUP] if n == 1 else []) for n in range(3)),
        )
    }
    running = [vm for vm in made.values() if vm.name != "waits"]
    eventually("all run", lambda: {state(client, vm) for vm in running} == {"running"})
    client.stop_vm(made["stops"].id)
    eventually("one is stopped", lambda: state(client, made["stops"]) == "stopped")
    gone = client.create_vm(small("gone"))
    client.delete_vm(gone.id)
    return made


def test_an_upgrade_keeps_everything_and_what_was_under_way_ends(
    release: Release, older: Site, site: Site, database: dict[str, object]
) -> None:
    before = older.serve("plane", **database)
    agents = [older.hosts(name, before, boot_s=0.3) for name in ("here", "there")]
    with older.client(before) as client:
        made = live(client, BootBody(user_data=SECRET) if not release.first else None)
        for name in ("moves-0", "moves-1"):
            client.migrate_vm(made[name].id)
    before.kill()  # while they move
    server = site.serve_again(before)
    with site.client(server) as client:
        if release.first:
            for name in ("moves-0", "moves-1"):
                was_sent(client, made[name])  # and nobody takes it: its target knows no such order
        else:
            come_to_rest(client, made)
            begin_move(client, made["moves-2"])
            come_to_rest(client, made)
        assert_healthy(client.doctor())
        eventually("what was deleted is gone", lambda: names(client) == set(made))

        for agent in agents:
            agent.stop()
            site.hosts_again(agent)
        come_to_rest(client, made)
        for name in ("moves-0", "runs"):
            begin_move(client, made[name])
        come_to_rest(client, made)
        if not release.first:
            told_again(client, agents, made["runs"])
        asked = CreateReservation(
            name="later", project="default", demand=DemandBody(cpu=1, memory="1GiB")
        )
        if database:
            with pytest.raises(RoostError, match="older processes may run beside"):
                client.create_reservation(asked)  # an older process would give its room away
        finished = client.finish_upgrade()
        assert_healthy(client.doctor())
        assert client.doctor().notes == []
        assert client.finish_upgrade() == type(finished)()
    assert server.stop() == 0
    if release.schema >= "0006":
        refused = older.serve_again(before, ready=False)
        assert refused.wait() != 0
        assert "a later release has migrated it" in refused.log()
    assert SECRET.encode() not in b"".join(
        path.read_bytes() for path in (site.folder / "plane").glob("roost.db*")
    )


def was_sent(client: Client, vm: VMBody) -> None:
    """Wait until the source of a move has sent all of it, or the move is over."""

    def sent() -> bool:
        move = client.get_vm(vm.id).migration
        return move is None or move.phase == "landing"

    eventually(f"{vm.name} was sent", sent)


def names(client: Client) -> set[str]:
    """Return the names of all VMs."""
    return {vm.name for vm in client.all_vms()}


def come_to_rest(client: Client, made: dict[str, VMBody]) -> None:
    """Wait until every VM is in the state that was asked for, and none moves."""
    wanted = {"stops": "stopped", "waits": "pending"}

    def rests() -> bool:
        found = {vm.name: vm for vm in client.all_vms()}
        return all(
            found[name].state == wanted.get(name, "running") and found[name].migration is None
            for name in made
        )

    eventually("all VMs rest", rests)


def begin_move(client: Client, vm: VMBody) -> None:
    """Ask for a move as soon as hosts are there that can take part in it."""

    def begun() -> bool:
        with suppress(RoostError):
            client.migrate_vm(vm.id)
            return True
        return False

    eventually(f"{vm.name} can be moved", begun)


def told_again(client: Client, agents: list[Hosts], vm: VMBody) -> None:
    """Wait until the host of a VM has its user data."""
    folders = {agent.name: agent.folder for agent in agents}

    def told() -> bool:
        host = client.get_vm(vm.id).host
        assert host is not None
        return SECRET in (folders[host] / "desired.json").read_text()

    eventually("its host has the user data", told)
