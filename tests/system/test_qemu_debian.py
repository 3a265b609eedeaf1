"""A Debian that knows nothing of roost: booted by cloud-init, moved with ssh open, killed half way.

Two hosts, each with a network of its own, joined by a cable (tests/system/networks.py); ssh goes to
the guest over the bridges as it would in a data centre. One guest serves all tests: under software
emulation it takes a minute of a core to boot. A test that leaves it in doubt makes the next one
boot another.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from roost.client import Client
from roost.wire.bodies import BootBody, ImageBody, NicBody, VMBody
from tests.guest import debian, image_info, is_unbroken, need, without
from tests.system.conftest import Real, two_hosts
from tests.system.movefaults import ended, events, killing
from tests.system.networks import ADDRESSES, BRIDGE, Networks, two_networks, why_not
from tests.system.processes import Hosts, eventually
from tests.system.qemuhosts import QemuSite
from tests.turns import in_turn

pytestmark = pytest.mark.slow

#: A boot takes a minute of a core; of a machine that has other work to do, several.
BOOT_S = 900.0
#: For one answer of a guest that is up.
ANSWER_S = 180.0
MEMORY = "320MiB"
CMDLINE = "root=/dev/vda ro console=ttyS0 quiet loglevel=3 net.ifnames=0"
USER_DATA = """#cloud-config
ssh_authorized_keys: [{key}]
ssh_genkeytypes: [ed25519]
locale: C.UTF-8
write_files:
  - path: /etc/told
    content: "by its seed\\n"
"""
OTHER = {"one": "two", "two": "one"}


class DebianSite(QemuSite):
    """A control plane and two hosts with bridges."""

    boot_s = BOOT_S

    def __init__(self, folder: Path, networks: Networks) -> None:
        super().__init__(folder)
        self.networks = networks

    def _agent(self, name: str, more: dict[str, object]) -> Hosts:
        if name == "two":
            self.networks.pass_on(self.server.port)
            self.prefixes[name] = self.networks.in_second
        address = ADDRESSES[name == "two"]
        options: dict[str, object] = {"bridge": BRIDGE, "migrate_address": address}
        options["image_from"] = f"{debian().disk.parent.as_uri()}/"
        return super()._agent(name, options | more)


@dataclass
class Guest:
    """The Debian, and how to talk to it."""

    real: Real
    folder: Path
    vm: VMBody
    address: str
    is_well: bool = False  # said at the end of a test

    def ssh(self, *words: str) -> list[str]:
        """Return a command that runs words in the guest."""
        options = {
            "StrictHostKeyChecking": "accept-new",  # and the same one after that
            "UserKnownHostsFile": str(self.folder / f"known-{self.vm.id}"),
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "20",
        }
        flat = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        command = ["ssh", "-F", "none", "-i", str(key_pair(self.folder)), *flat]
        return [*command, f"debian@{self.address}", *words]

    def ask(self, *words: str) -> str:
        """Run words in the guest, as soon as it answers, and return what they print."""

        def answer() -> str | None:
            done = subprocess.run(
                self.ssh(*words), capture_output=True, text=True, timeout=ANSWER_S, check=False
            )
            return done.stdout.strip() or "nothing" if done.returncode == 0 else None

        return eventually(f"it answers {words}", answer, BOOT_S, every_s=1.0)

    def settle(self) -> VMBody:
        """Demand that one copy executes, where the ledger has it, and answers."""
        site, client = self.real.site, self.real.client
        self.vm = site.running(client, self.vm)
        eventually("one QEMU is left", lambda: site.qemu_hosts(self.vm) == [self.vm.host])
        assert self.ask("cat", "/etc/told") == "by its seed"  # as soon as it has booted
        assert site.watch.executing(self.vm.id) == [self.vm.host]
        assert site.watch.doubles() == []
        site.doctor(site.server)
        self.is_well = True
        return self.vm


@contextmanager
def counting_over_ssh(guest: Guest) -> Iterator["Connection"]:
    """Have the guest count over a connection that stays open; demand that none is lost."""
    path = guest.folder / "counted"
    loop = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done"
    with path.open("wb") as file:
        process = subprocess.Popen(
            guest.ssh(loop), stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    connection = Connection(process, path)
    try:
        connection.goes_on()
        yield connection
    finally:
        process.kill()
        process.wait()


@dataclass
class Connection:
    """An open ssh connection over which a guest counts."""

    process: "subprocess.Popen[bytes]"
    path: Path

    def numbers(self) -> list[int]:
        """Return what has come; a line that is not whole is left out."""
        return [int(line) for line in re.findall(r"^(\d+)\n", self.path.read_text(), re.MULTILINE)]

    def goes_on(self, more: int = 5) -> None:
        """Wait until it has counted on, with no number left out."""
        before = len(self.numbers())

        def has_counted() -> bool:
            assert self.process.poll() is None, self.path.read_text()[-300:]
            return len(self.numbers()) >= before + more

        eventually("it counts on", has_counted, ANSWER_S)
        assert is_unbroken(self.numbers())


@cache
def key_pair(folder: Path) -> Path:
    """Make a key to log in with, and return its path."""
    path = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """Give a control plane and two hosts with bridges, all of it watched."""
    if reason := why_not():
        without(reason)
    need("ssh", "ssh-keygen")
    debian()
    folder = tmp_path_factory.mktemp("debian")
    with two_networks(folder) as networks, two_hosts(DebianSite(folder, networks)) as running:
        yield running


@pytest.fixture(scope="module")
def kept() -> dict[str, Guest]:
    """Give what tests leave to those after them."""
    return {}


@pytest.fixture
def guest(site: Real, kept: dict[str, Guest]) -> Guest:
    """Give the Debian, up and in peace."""
    found = kept.get("guest")
    if found is not None and not found.is_well:
        site.client.delete_vm(found.vm.id)
        eventually("it is gone", lambda: site.site.qemu_hosts(found.vm) == [])
        found = None
    if found is None:
        found = kept["guest"] = _create(site, f"deb{len(events_of_creates(site.client))}")
    found.is_well = False
    return found


def events_of_creates(client: Client) -> list[str]:
    """Return the VMs that were ever created."""
    return [e.subject for e in client.list_events(limit=1000).events if e.kind == "vm.created"]


def _create(real: Real, name: str) -> Guest:
    folder, files = real.site.folder, debian()
    key = key_pair(folder).with_suffix(".pub").read_text().strip()
    boot = BootBody(
        image=_image(files.disk),
        kernel=_image(files.kernel),
        initrd=_image(files.initrd),
        cmdline=CMDLINE,
        user_data=USER_DATA.format(key=key),
    )
    more: dict[str, object] = {"memory": MEMORY, "disk": "2GiB", "boot": boot}
    nics = [NicBody(mode="tap", bridge=BRIDGE)]
    vm = real.site.running(
        real.client, real.site.create(real.client, name, "one", nics=nics, **more)
    )
    networks = real.site.networks  # type: ignore[attr-defined]
    address = eventually("it has an address", lambda: networks.address_of(name), BOOT_S, 0.5)
    made = Guest(real, folder, vm, address)
    made.ask("true")
    return made


def _image(path: Path) -> ImageBody:
    info = image_info(path)
    return ImageBody(digest=info.digest, url=info.url)


def test_it_boots_as_its_seed_says(guest: Guest) -> None:
    assert guest.ask("hostname") == guest.vm.name
    assert guest.ask("cat", "/etc/told") == "by its seed"
    size = int(guest.ask("df", "--output=size", "-B1", "/", "|", "tail", "-1"))
    assert size > 1.8 * (1 << 30)  # of an image with 633 MiB: cloud-init has grown it
    guest.settle()


def test_it_moves_with_an_open_connection(guest: Guest) -> None:
    target = OTHER[str(guest.vm.host)]
    with counting_over_ssh(guest) as connection:
        guest.ask("sudo", "sh", "-c", "'echo kept > /var/tmp/kept; sync'")
        done = guest.real.site.roost("vm", "migrate", guest.vm.name, "--to", target, "--wait")
        assert done.returncode == 0, done.stderr
        connection.goes_on()
    assert guest.settle().host == target
    assert guest.ask("cat", "/var/tmp/kept") == "kept"


#: Who is killed, in the moment when whose QEMU says what; the guest goes on in each of them.
INSTANTS = (
    ("target", "source", "STOP"),
    ("target", "source", "MIGRATION pre-switchover"),
    ("target", "source", "MIGRATION device"),
    ("source", "target", "RESUME"),
)


@pytest.mark.parametrize(("victim", "by", "said"), in_turn(INSTANTS, 2))
def test_a_kill_at_the_switch_over_does_not_end_the_connection(
    guest: Guest, victim: str, by: str, said: str
) -> None:
    ends = {"source": str(guest.vm.host), "target": OTHER[str(guest.vm.host)]}
    before = len(events(guest.real, guest.vm))
    with counting_over_ssh(guest) as connection:
        guest.real.client.migrate_vm(guest.vm.id, host=ends["target"])
        with killing(guest.real, guest.vm, said, ends[by], ends[victim]) as killed:
            eventually("it is killed", lambda: killed, ANSWER_S)
            end = ended(guest.real, guest.vm, before)
        connection.goes_on()
    moved = victim == "source"
    assert (end.kind == "vm.moved") is moved
    assert guest.settle().host == ends["target" if moved else "source"]


def test_a_target_that_dies_once_it_executes_boots_there_and_has_lost_nothing_synced(
    guest: Guest,
) -> None:
    target = OTHER[str(guest.vm.host)]
    before = len(events(guest.real, guest.vm))
    booted = guest.ask("cat", "/proc/sys/kernel/random/boot_id")
    guest.ask("sudo", "sh", "-c", "'echo synced > /var/tmp/synced; sync'")
    guest.real.client.migrate_vm(guest.vm.id, host=target)
    with killing(guest.real, guest.vm, "RESUME", target, target) as killed:
        eventually("it is killed", lambda: killed, ANSWER_S)
        ended(guest.real, guest.vm, before)
    assert guest.settle().host == target
    assert guest.ask("cat", "/proc/sys/kernel/random/boot_id") != booted
    assert guest.ask("cat", "/var/tmp/synced") == "synced"
    assert guest.ask("hostname") == guest.vm.name
