"""An attack as Hypothesis draws it: connections opened, spoken on, cut and left, in any order.

The rules are what an attacker can do; the laws are those of `siege.py`, looked at after every step
and once more when all connections are closed. Hypothesis shrinks what breaks one to the shortest
sequence of steps. Messages name VMs and hosts by what they are called; ids are put in when they
are said, so that a sequence means the same in the next run.
"""

import re
from itertools import pairwise
from typing import Any, get_args

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from roost.model.states import Seen
from roost.wire.agentlink import PROTOCOL, CopyState
from tests.api.table import ROUTES
from tests.api.test_every_route import BODIES
from tests.fuzz.siege import EVIL, HONEST, OWN, Line, Siege, dumped, request
from tests.fuzz.strategies import JUNK, SAID

MOST_LINES = 4
_VMS = [OWN, *HONEST.values(), "invented"]
_IDS = [f"ID-OF-{name}" for name in (OWN, *HONEST.values())]
_NAMES = st.sampled_from([*_VMS, EVIL, *HONEST, "p1", "p2", "default"])
#: What stands in an address, by the name of its place.
_ARGUMENTS = {"vm": st.sampled_from([*_VMS, *_IDS]), "host": st.sampled_from([EVIL, *HONEST])}
_OF_VMS = [route for route in ROUTES if "{vm}" in route.path]
_GENERATIONS = st.sampled_from([1, 1, 1, 2, 0, 3, 9, 2**20 + 1, 2**26, 2**62, 2**63])
_TOTALS = st.sampled_from([0, 1000, 2**30, 2**48, 2**48 + 1, -1, None])


def _made(tag: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(tag), **fields})


_AMOUNT = st.fixed_dictionaries({"total": st.just(1000) | _TOTALS})
_AMOUNTS = dict.fromkeys(("cpu_milli", "memory_bytes", "disk_bytes"), st.just({"total": 1000}))
_MANY = st.tuples(st.sampled_from("ab"), st.sampled_from([1, 16, 17, 32, 33, 62, 62, 63])).map(
    lambda drawn: [f"{drawn[0]}{n}" for n in range(drawn[1])]
)
_INVENTORY = st.fixed_dictionaries(
    _AMOUNTS,
    optional={
        "devices": _MANY.map(lambda names: [{"model": name} for name in names]),
        "cells": st.lists(
            st.fixed_dictionaries({"cpu_milli": _TOTALS, "memory_bytes": _TOTALS}), max_size=3
        ),
        "extended": _MANY.map(lambda names: {name: {"total": 1} for name in names}),
        "labels": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
        "max_vms": st.sampled_from([0, 1, 10**6, 2**62]),
    },
) | st.fixed_dictionaries(dict.fromkeys(_AMOUNTS, _AMOUNT))
_SEEN = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from([*_IDS, "vm-invented"]),
            "generation": _GENERATIONS,
            "seen": st.sampled_from([*get_args(Seen), "flying"]),
        }
    ),
    max_size=4,
)
_HELD = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from([*_IDS, "vm-invented"]), "generation": _GENERATIONS}
    ),
    max_size=3,
)
_COPIES = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from([*_IDS, "vm-invented"]),
            "generation": _GENERATIONS,
            "is": st.sampled_from(get_args(CopyState)),
        }
    ),
    max_size=4,
)
_DIGEST = st.sampled_from(["TRUE", "", "0"])
_HELLO = _made(
    "hello",
    protocol=st.sampled_from([PROTOCOL] * 9 + [0, 99]),
    host=st.sampled_from([EVIL, EVIL, *HONEST]),
    instance=st.sampled_from(["first", "first", "i2"]),
    version=st.just("1"),
    inventory=st.just("KNOWN") | _INVENTORY,
    digest=_DIGEST,
    vms=_SEEN,
    held=_HELD,
    conversation=st.integers(0, 9),
    heard=st.none()
    | st.none()
    | st.fixed_dictionaries({"seq": _GENERATIONS, "tx": st.just("invented")}),
)
#: A hello that is let in, so that what follows is heard.
_GOOD_HELLO = _made(
    "hello",
    protocol=st.just(PROTOCOL),
    host=st.just(EVIL),
    instance=st.just("first"),
    version=st.just("1"),
    inventory=st.just("KNOWN"),
    conversation=st.integers(1, 9),
)
_HEARTBEAT = _made("heartbeat", number=st.integers(0, 5), digest=_DIGEST)
_REPORT = _made("report", vms=_SEEN, held=_HELD, full=st.booleans())
_PRESENT = _made("present", digest=_DIGEST, copies=_COPIES)
_TOLD = _made("told", number=st.integers(0, 3), text=st.text(max_size=5))
_SAMPLES = _made(
    "samples", samples=st.just([{"vm": "", "at_ms": 1, "cpu_milli": 1, "memory_bytes": 1}])
)
_VALID = st.one_of(_HELLO, _HELLO, _HEARTBEAT, _REPORT, _REPORT, _PRESENT, _TOLD, _SAMPLES)
_MESSAGE = st.one_of(*[_VALID] * 8, SAID, JUNK)
#: Messages one after the other; those of an honest life in another order, too.
CONVERSATION = st.one_of(
    st.lists(_MESSAGE, min_size=1, max_size=5),
    st.tuples(_GOOD_HELLO, _VALID, _VALID, _MESSAGE).map(list),
    st.tuples(_GOOD_HELLO, _HEARTBEAT, _REPORT, _PRESENT).flatmap(st.permutations),
)
_OPCODES = st.sampled_from([0x81, 0x82, 0x01, 0x00, 0x80, 0x88, 0x89, 0x8A, 0x83, 0xC1, 0xF1])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Draw a request of any route, as a member or as nobody."""
    route = draw(st.sampled_from([*ROUTES, *_OF_VMS, *_OF_VMS]))
    path = re.sub(r"{(\w+)}", lambda found: draw(_ARGUMENTS.get(found[1], _NAMES)), route.path)
    query = draw(st.sampled_from(["", "", "?project=default", "?project=p1", "?since=0"]))
    known = BODIES.get(route.body.__name__) if route.body is not None else None
    body = b"" if known is None else dumped(known)
    if draw(st.integers(0, 9)) == 0:
        body = dumped(draw(JUNK))
    holder = draw(st.sampled_from(["member"] * 9 + [None, "agent", "join"]))
    method = draw(st.sampled_from([route.method] * 12 + ["DELETE", "BREW"]))
    extra = draw(
        st.sampled_from(
            [*[""] * 8, "Idempotency-Key: k\r\n", "Transfer-Encoding: chunked\r\n",
             "Content-Length: 5\r\n", "Expect: 100-continue\r\n", "X: " + "y" * 70_000 + "\r\n"]
        )
    )  # fmt: skip
    return request(method, path + query, body, holder=holder, extra=extra)


def _pieces(data: bytes, cuts: list[float]) -> list[bytes]:
    """Return bytes cut at shares of their length."""
    at = sorted({0, len(data), *(int(share * len(data)) for share in cuts)})
    return [data[a:b] for a, b in pairwise(at)]


def frame(payload: bytes, first: int = 0x81, *, masked: bool = True) -> bytes:
    """Return a frame of any size."""
    size, bit = len(payload), 0x80 if masked else 0
    if size < 126:
        head = bytes([first, bit | size])
    elif size < 65536:
        head = bytes([first, bit | 126]) + size.to_bytes(2)
    else:
        head = bytes([first, bit | 127]) + size.to_bytes(8)
    if not masked:
        return head + payload
    mask = b"\x17\x2a\x3b\x4c"
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


class Attack(RuleBasedStateMachine):
    """One siege, from the first connection to the last."""

    def __init__(self) -> None:
        super().__init__()
        self.siege = Siege()
        self.siege.begin()
        self.agents: list[Line] = []
        self.clients: list[Line] = []

    def _agent(self, which: int) -> Line:
        """Return a connection as an agent; one that was closed is opened again."""
        at = which % len(self.agents)
        if not self.agents[at].is_open:
            self.siege.do(lambda: self.agents[at].close(rudely=True))
            self.agents[at] = self.siege.do(self.siege.open_agent)
        return self.agents[at]

    def _client(self, which: int) -> Line:
        """Return a connection as a client; one that was closed is opened again."""
        at = which % len(self.clients)
        if not self.clients[at].is_open:
            self.siege.do(lambda: self.clients[at].close(rudely=True))
            self.clients[at] = self.siege.do(self.siege.open_client)
        return self.clients[at]

    @initialize(said=_GOOD_HELLO)
    def arrive(self, said: Any) -> None:
        """Open one connection of each kind, and be let in as an agent."""
        self.open_agent()
        self.open_client()
        self.siege.do(lambda: self.siege.send(self.agents[0], frame(self.siege.said(said))))

    @precondition(lambda self: len(self.agents) < MOST_LINES)
    @rule()
    def open_agent(self) -> None:
        self.agents.append(self.siege.do(self.siege.open_agent))

    @precondition(lambda self: self.agents)
    @rule(which=st.integers(0, 9), said=CONVERSATION)
    def speak(self, which: int, said: list[Any]) -> None:
        line = self._agent(which)
        frames = [frame(self.siege.said(message)) for message in said]
        self.siege.do(lambda: self.siege.send(line, *frames))

    @precondition(lambda self: self.agents)
    @rule(
        which=st.integers(0, 9),
        said=_MESSAGE,
        cuts=st.lists(st.floats(0, 1), max_size=3),
        fragments=st.booleans(),
        lost=st.booleans(),
    )
    def speak_in_pieces(
        self, which: int, said: Any, cuts: list[float], fragments: bool, lost: bool
    ) -> None:
        """Say a message in pieces of a frame, or in frames; the last piece may be lost."""
        line, data = self._agent(which), self.siege.said(said)
        if fragments:
            parts = _pieces(data, cuts) or [b""]
            pieces = [
                frame(part, (0x80 if at == len(parts) - 1 else 0) | (0x01 if at == 0 else 0))
                for at, part in enumerate(parts)
            ]
        else:
            pieces = _pieces(frame(data), cuts)
        kept = pieces[:-1] if lost else pieces
        self.siege.do(lambda: self.siege.send(line, *kept))

    @precondition(lambda self: self.agents)
    @rule(
        which=st.integers(0, 9),
        first=_OPCODES,
        payload=st.binary(max_size=130),
        masked=st.booleans(),
        noise=st.binary(max_size=12),
    )
    def send_frame(
        self, which: int, first: int, payload: bytes, masked: bool, noise: bytes
    ) -> None:
        line = self._agent(which)
        data = frame(payload, first, masked=masked) + noise
        self.siege.do(lambda: self.siege.send(line, data))

    @precondition(lambda self: len(self.clients) < MOST_LINES)
    @rule()
    def open_client(self) -> None:
        self.clients.append(self.siege.do(self.siege.open_client))

    @precondition(lambda self: self.clients)
    @rule(
        which=st.integers(0, 9),
        asked=st.lists(requests(), min_size=1, max_size=4),
        cuts=st.lists(st.floats(0, 1), max_size=3),
        lost=st.booleans(),
        noise=st.binary(max_size=8),
    )
    def ask(
        self, which: int, asked: list[bytes], cuts: list[float], lost: bool, noise: bytes
    ) -> None:
        """Send requests at once or in pieces; the last piece may be lost, or noise follow."""
        line = self._client(which)
        pieces = _pieces(self.siege.named(b"".join(asked)), cuts)
        kept = pieces[:-1] if lost else [*pieces, noise]
        self.siege.do(lambda: self.siege.send(line, *kept))

    @precondition(lambda self: self.agents or self.clients)
    @rule(which=st.integers(0, 9), rudely=st.booleans())
    def leave(self, which: int, rudely: bool) -> None:
        lines = self.agents if (which % 2 and self.agents) or not self.clients else self.clients
        line = lines.pop(which % len(lines))
        self.siege.do(lambda: line.close(rudely=rudely))

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0]))
    def pass_by(self, seconds: float) -> None:
        self.siege.do(lambda: self.siege.pass_by(seconds))

    @invariant()
    def laws_hold(self) -> None:
        self.siege.do(self.siege.look)

    def teardown(self) -> None:
        try:
            for line in (*self.agents, *self.clients):
                self.siege.do(lambda line=line: line.close(rudely=True))
            self.siege.do(self.siege.leave)
        finally:
            self.siege.end()


def attacks(count: int, steps: int, *, shrink: bool = True) -> settings:
    """Return the settings for so many attacks of so many steps."""
    phases = (Phase.explicit, Phase.generate) + ((Phase.shrink,) if shrink else ())
    return settings(
        max_examples=count,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=False,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
