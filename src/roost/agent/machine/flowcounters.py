"""What cards of this machine send to other cards, counted by the kernel: nftables on its bridges.

A table of the family `bridge`, whose name is the agent's own, sees every frame that comes in by a
card that was named, and counts its bytes by the address that it is for. By the card it came in by
and not by the address that it says it is from: a guest can lie about the one and not about the
other. Frames for many (broadcast, multicast) are not counted. A card has a set of its own of so
many addresses; what a guest sends to more of them is not counted, and no other guest's counting
suffers. Whoever counts each direction where it is sent counts nothing twice.

    frame --prerouting--> iifname in `cards`? --jump--> sent_N: update @to_N {ether daddr counter}

Nothing is dropped, marked or changed. It takes nft and the right to change the network.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from roost.base import private
from roost.hostkit.failures import DriverError

#: Addresses that are counted of one card, how long one is kept that nothing is sent to, and cards.
MOST_ADDRESSES, KEPT_S, MOST_CARDS = 128, 600, 1024
#: The largest answer of nft that is read.
_MOST_BYTES = 64 * 2**20

_decode = msgspec.json.Decoder(dict[str, list[dict[str, Any]]]).decode


class Sent(NamedTuple):
    """What came in by one card of the machine for one address since it was read before."""

    card: str
    address: str
    sent_bytes: int


class FlowCounters:
    """The counters of one agent."""

    def __init__(self, table: str, nft: Sequence[str] = ("nft",)) -> None:
        self._table, self._nft = table, tuple(nft)
        self._numbers: dict[str, int] = {}  # by card: of its set and chain
        self._last = 0
        self._before: dict[tuple[int, str], int] = {}  # bytes as they were read, by set and address
        self._open = False

    async def read(self, cards: Sequence[str]) -> list[Sent]:
        """Return what these cards have sent since the last time; from now on they are counted.

        Raises DriverError when nothing can be counted now.
        """
        wanted = list(dict.fromkeys(cards))[:MOST_CARDS]
        try:
            if script := self._changes(wanted):
                await self._run("-f", "-", words=script)
            self._open = True
            said = await self._run("-j", "list", "table", "bridge", self._table) if wanted else b""
        except (DriverError, asyncio.CancelledError):
            # The table may be gone (`nft flush ruleset`): it is made anew the next time.
            self._open = False
            self._numbers.clear()
            self._before.clear()
            raise
        if not said:
            self._before.clear()
            return []
        now = _counted(said)
        sent, of = [], {number: card for card, number in self._numbers.items()}
        for (number, address), count in sorted(now.items()):
            before = self._before.get((number, address), 0)
            new = count - before if count >= before else count  # it was forgotten, and began anew
            if new > 0 and number in of:
                sent.append(Sent(of[number], address, new))
        self._before = now
        return sent

    async def close(self) -> None:
        """Remove the table, if it was made."""
        if self._open:
            self._open = False
            await self._run("delete", "table", "bridge", self._table)

    def _changes(self, wanted: Sequence[str]) -> str:
        """Return what makes the table count these cards and no others; notes them."""
        table, script = f"bridge {self._table}", []
        if not self._open:
            self._numbers.clear()
            # Added first so that it can be deleted: an agent before this one may have left it.
            script += [f"add table {table}", f"delete table {table}", f"add table {table}"]
            script += [
                f"add map {table} cards {{ type ifname : verdict ; }}",
                f"add chain {table} sent "
                "{ type filter hook prerouting priority -300 ; policy accept ; }",
                f"add rule {table} sent ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00 "
                "iifname vmap @cards",
            ]
        for card in [each for each in self._numbers if each not in set(wanted)]:
            number = self._numbers.pop(card)
            script += [
                f'delete element {table} cards {{ "{card}" }}',
                f"delete chain {table} sent_{number}",
                f"delete set {table} to_{number}",
            ]
        for card in wanted:
            if card in self._numbers:
                continue
            self._last += 1
            number = self._numbers[card] = self._last
            script += [
                f"add set {table} to_{number} {{ type ether_addr ; size {MOST_ADDRESSES} ; "
                f"flags dynamic,timeout ; timeout {KEPT_S}s ; }}",
                f"add chain {table} sent_{number}",
                f"add rule {table} sent_{number} update @to_{number} {{ ether daddr counter }}",
                f'add element {table} cards {{ "{card}" : jump sent_{number} }}',
            ]
        return "".join(f"{line}\n" for line in script)

    async def _run(self, *arguments: str, words: str = "") -> bytes:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *self._nft, *arguments, stdin=pipe, stdout=pipe, stderr=pipe,
                env=private.plain_environment(),
            )  # fmt: skip
        except OSError as error:
            raise DriverError("permanent", "no_flows", f"nft cannot be run: {error}") from error
        try:
            output, said = await process.communicate(words.encode())
        except asyncio.CancelledError:
            process.kill()
            raise
        if process.returncode or len(output) > _MOST_BYTES:
            why = said.decode(errors="replace").strip()[:500] or "says too much"
            raise DriverError("permanent", "no_flows", f"nft {arguments[0]} fails: {why}")
        return output


def _counted(said: bytes) -> dict[tuple[int, str], int]:
    """Return the bytes that nft tells of, by number of the set and address."""
    found: dict[tuple[int, str], int] = {}
    try:
        for each in _decode(said).get("nftables", []):
            name, _, number = each.get("set", {}).get("name", "").partition("_")
            if name != "to" or not number.isdecimal():
                continue
            for element in each["set"].get("elem", []):
                one = element["elem"]
                found[int(number), str(one["val"]).lower()] = int(one["counter"]["bytes"])
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise DriverError("permanent", "no_flows", f"nft cannot be understood: {error}") from error
    return found


def by_owner(sent: Sequence[Sent], owners: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """Return bytes by VM and address, of cards whose VMs are known."""
    found: dict[tuple[str, str], int] = {}
    for each in sent:
        if (vm := owners.get(each.card)) is not None:
            found[vm, each.address] = found.get((vm, each.address), 0) + each.sent_bytes
    return found
