"""Who sends how much to whom, counted by the kernel: real frames between network namespaces.

Two hosts, each a namespace with a bridge, are joined by a cable. Two guests are on the first, one
is on the second. Guests send frames of a kind that nobody answers, so that every byte is known.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack

import pytest

from roost.agent.machine.flowcounters import MOST_ADDRESSES, FlowCounters, Sent, by_owner
from roost.hostkit.failures import DriverError
from tests.guest import need

A1, A2, B1 = (f"52:54:00:00:00:{last}" for last in ("a1", "a2", "b1"))
ROUTER = "00:11:22:33:44:55"
TABLE = "roost_test"
#: Sends frames from eth0: to, from, bytes behind the header, how many; one group after the other.
_SENDER = """
import socket, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("eth0", 0))
for word in sys.argv[1:]:
    to, source, size, count = word.split(",")
    head = bytes.fromhex(to.replace(":", "") + source.replace(":", "")) + b"\\x88\\xb5"
    for _ in range(int(count)):
        out.send(head + bytes(int(size)))
"""


class Wires:
    """The namespaces, while they are there."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._mark = f"rf{os.getpid()}"

    def make(self) -> None:
        for host in ("a", "b"):
            self._namespace(host)
            self._ip("-n", self.name(host), "link", "add", "br0", "type", "bridge")
            self._ip("-n", self.name(host), "link", "set", "br0", "up")
        self._ip(*f"link add cable netns {self.name('a')} type veth peer name cable".split(),
                 "netns", self.name("b"))  # fmt: skip
        for host in ("a", "b"):
            self._ip("-n", self.name(host), *["link", "set", "cable", "master", "br0", "up"])
        for guest, host, address in (("a1", "a", A1), ("a2", "a", A2), ("b1", "b", B1)):
            self._namespace(guest)
            self._ip(*f"link add card-{guest} netns {self.name(host)} type veth".split(),
                     *f"peer name eth0 netns {self.name(guest)}".split())  # fmt: skip
            self._ip("-n", self.name(host), *f"link set card-{guest} master br0 up".split())
            self._ip("-n", self.name(guest), *f"link set eth0 address {address} up".split())

    def name(self, which: str) -> str:
        return f"{self._mark}{which}"

    def send(self, guest: str, *groups: tuple[str, str, int, int]) -> None:
        """Let a guest send frames."""
        words = [",".join(map(str, group)) for group in groups]
        self._run("netns", "exec", self.name(guest), sys.executable, "-c", _SENDER, *words)

    def nft(self, host: str, *words: str) -> str:
        return self._run("netns", "exec", self.name(host), "nft", *words)

    def counters(self, host: str) -> FlowCounters:
        return FlowCounters(TABLE, ("ip", "netns", "exec", self.name(host), "nft"))

    def _namespace(self, which: str) -> None:
        self._run("netns", "add", self.name(which))
        self._stack.callback(self._run, "netns", "del", self.name(which))

    def _ip(self, *words: str) -> None:
        self._run(*words)

    def _run(self, *words: str) -> str:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout


@pytest.fixture
def wires() -> Iterator[Wires]:
    need("ip", "nft", "unshare")
    if subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode:
        pytest.skip("a network of its own takes the right to make one")
    with ExitStack() as stack:
        made = Wires(stack)
        made.make()
        tried = f"add table bridge {TABLE}", f"delete table bridge {TABLE}"
        words = ["ip", "netns", "exec", made.name("a"), "nft", "; ".join(tried)]
        if why := subprocess.run(words, capture_output=True, text=True, check=False).stderr:
            pytest.skip(f"this kernel has no nftables on bridges: {why.splitlines()[0]}")
        yield made


def counting(wires: Wires, test: Callable[[FlowCounters, FlowCounters], Awaitable[None]]) -> None:
    """Run a test with the counters of both hosts, made and at zero."""

    async def main() -> None:
        a, b = wires.counters("a"), wires.counters("b")
        assert await a.read(["card-a1", "card-a2"]) == []
        assert await b.read(["card-b1"]) == []
        await test(a, b)
        await a.close()
        await b.close()
        for host in ("a", "b"):
            assert TABLE not in wires.nft(host, "list", "tables")

    asyncio.run(main())


async def of(counters: FlowCounters, *cards: str) -> set[Sent]:
    """Return what was counted for the addresses of this test."""
    found = await counters.read(cards)
    return {each for each in found if each.address in (A1, A2, B1, ROUTER)}


def test_each_direction_is_counted_once_where_it_is_sent(wires: Wires) -> None:
    async def test(a: FlowCounters, b: FlowCounters) -> None:
        wires.send("a1", (A2, A1, 1000, 10), (B1, A1, 500, 4), ("ff:ff:ff:ff:ff:ff", A1, 100, 5))
        wires.send("b1", (A1, B1, 200, 3))
        assert await of(a, "card-a1", "card-a2") == {
            Sent("card-a1", A2, 10_000), Sent("card-a1", B1, 2000),
        }  # fmt: skip
        assert await of(b, "card-b1") == {Sent("card-b1", A1, 600)}
        assert await of(a, "card-a1", "card-a2") == set()  # what was told is not told again
        wires.send("a1", (A2, A1, 1000, 1))
        assert await of(a, "card-a1", "card-a2") == {Sent("card-a1", A2, 1000)}

    counting(wires, test)


def test_a_guest_that_lies_about_its_address_is_counted_by_its_card(wires: Wires) -> None:
    async def test(a: FlowCounters, b: FlowCounters) -> None:
        wires.send("a2", (B1, A1, 100, 7))
        found = await of(a, "card-a1", "card-a2")
        assert by_owner(list(found), {"card-a1": "vm-1", "card-a2": "vm-2"}) == {("vm-2", B1): 700}

    counting(wires, test)


def test_a_guest_that_sends_to_everybody_spoils_only_its_own_counting(wires: Wires) -> None:
    async def test(a: FlowCounters, b: FlowCounters) -> None:
        many = [(f"52:54:01:00:{n // 256:02x}:{n % 256:02x}", A2, 50, 1) for n in range(1000)]
        wires.send("a2", *many)
        wires.send("a1", (B1, A1, 300, 2))
        found = await a.read(["card-a1", "card-a2"])
        assert Sent("card-a1", B1, 600) in found
        assert len([each for each in found if each.card == "card-a2"]) == MOST_ADDRESSES

    counting(wires, test)


def test_cards_come_and_go_and_another_agent_begins_anew(wires: Wires) -> None:
    async def test(a: FlowCounters, b: FlowCounters) -> None:
        wires.send("a1", (B1, A1, 100, 1))
        wires.send("a2", (B1, A2, 100, 2))
        assert await of(a, "card-a2") == {Sent("card-a2", B1, 200)}
        wires.send("a1", (B1, A1, 100, 5))
        assert await of(a, "card-a1") == set()  # from now on it is counted again
        wires.send("a1", (B1, A1, 100, 3))
        assert await of(a, "card-a1") == {Sent("card-a1", B1, 300)}
        after = wires.counters("a")  # the one before was killed
        assert await of(after, "card-a1") == set()
        wires.send("a1", (B1, A1, 100, 4))
        assert await of(after, "card-a1") == {Sent("card-a1", B1, 400)}

    counting(wires, test)


def test_a_table_that_was_flushed_is_made_again(wires: Wires) -> None:
    async def test(a: FlowCounters, b: FlowCounters) -> None:
        wires.nft("a", "flush", "ruleset")
        with pytest.raises(DriverError, match="nft -j fails"):
            await a.read(["card-a1", "card-a2"])
        assert await of(a, "card-a1") == set()
        wires.send("a1", (B1, A1, 100, 4))
        assert await of(a, "card-a1") == {Sent("card-a1", B1, 400)}

    counting(wires, test)


def test_without_nft_it_is_said() -> None:
    with pytest.raises(DriverError, match="nft cannot be run"):
        asyncio.run(FlowCounters(TABLE, ("/no/such/nft",)).read(["card"]))
