"""One call from its first try to its answer: what is sent, when it is sent again, when to give up.

A generator that does no I/O: it yields what to do next (`Send`, `Wait`) and is told what came of
it, so that both clients, and a virtual clock, share every decision.

    Send -> Answered 2xx             -> the answer
         -> Answered 503, not "no"   -> Wait (Retry-After or longer) -> Send
         -> Lost before it was sent  -> Wait -> Send
         -> Lost after it was sent   -> Wait -> Send, if the call is repeatable
         -> anything else, or patience has ended -> the error

Where a control plane has several servers, each that is away or busy sends the call on to the next,
at once, before anybody waits; the one that answered is asked first from then on.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import TypeVar

import msgspec

from roost.base.backoff import BackOff
from roost.base.errors import NoFit, RoostError, Unavailable
from roost.client.calls import Call
from roost.client.failures import error_of

T = TypeVar("T")

#: Pauses between tries of a call, and between connections of a feed.
PAUSES = BackOff(0.1, 5.0)
_BUSY = (429, 502, 503, 504)
#: Answers of a server that another of the same control plane need not give.
_ASK_ANOTHER = (502, 503, 504)
_OK = range(200, 300)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one call may take with all its tries: in all, and while nobody listens at all."""

    total_s: float = 30.0
    refused_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Send:
    """The next step: send this request."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: dict[str, str]
    content: bytes | None
    server: str = ""  # of several


@dataclass(frozen=True, slots=True)
class Wait:
    """The next step: wait so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answered:
    """The server said this."""

    status: int
    content: bytes
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection failed; `sent` when the server may have got the request."""

    problem: str
    sent: bool


Step = Send | Wait
Outcome = Answered | Lost | None


@dataclass(slots=True)
class Servers:
    """The servers of a control plane, and which of them is asked first."""

    all: tuple[str, ...]
    at: int = 0

    @property
    def current(self) -> str:
        """Return the server to ask."""
        return self.all[self.at]

    def move_on(self) -> None:
        """Ask the next server from now on."""
        self.at = (self.at + 1) % len(self.all)


@dataclass(frozen=True, slots=True)
class Manner:
    """What all conversations of a client share."""

    server: str
    token: str | None
    patience: Patience
    monotonic: Callable[[], float]
    random: Random
    new_key: Callable[[], str]
    others: tuple[str, ...] = ()
    servers: Servers = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "servers", Servers((self.server, *self.others)))

    def converse(self, call: Call[T]) -> Generator[Step, Outcome, T]:
        """Carry a call to its answer or its error."""
        send = self.first(call)
        began = self.monotonic()
        perhaps_done = False
        untried = len(self.others)
        attempt = 0
        for _ in count():
            server = self.servers.current
            outcome = yield replace(send, server=server) if self.others else send
            after = 0.0
            patience_s = self.patience.total_s
            if isinstance(outcome, Answered):
                if outcome.status in _OK or outcome.status in call.accepts:
                    return call.read(outcome.content)
                error, ours = error_of(outcome.status, outcome.content)
                if outcome.status == 404 and perhaps_done and call.removes:
                    return call.read(b"")  # the try whose answer was lost did it
                # "No host fits" is an answer. What a proxy says may come after the deed.
                again = outcome.status in _BUSY and not isinstance(error, NoFit)
                again = again and (ours or call.repeatable)
                after = _seconds(outcome.retry_after)
            else:
                assert isinstance(outcome, Lost)
                error, again = unreachable(server, outcome), call.repeatable
                if not outcome.sent:
                    again, patience_s = True, self.patience.refused_s
                perhaps_done = perhaps_done or outcome.sent
            if again and _is_for_another(outcome):
                self.servers.move_on()
                if untried:
                    untried -= 1
                    continue
                untried = len(self.others)
            pause = max(after, PAUSES.jittered_s(attempt, self.random))
            attempt += 1
            if not again or self.monotonic() - began + pause > patience_s:
                if self.others and isinstance(outcome, Lost) and not outcome.sent:
                    raise unreachable(" or ".join(self.servers.all), outcome)
                raise error
            yield Wait(pause)
        raise AssertionError("the loop has no other end")

    def first(self, call: Call[T]) -> Send:
        """Return what a call sends; every try is the same, to the key."""
        headers = {"Accept": "application/json"}
        if bearer := call.bearer or self.token:
            headers["Authorization"] = f"Bearer {bearer}"
        content = None
        if call.body is not None:
            content = msgspec.json.encode(call.body)
            headers["Content-Type"] = "application/json"
        if call.creates:
            headers["Idempotency-Key"] = call.key or self.new_key()
        return Send(call.method, call.path, call.query, headers, content)


def _is_for_another(outcome: Outcome) -> bool:
    return isinstance(outcome, Lost) or (
        isinstance(outcome, Answered) and outcome.status in _ASK_ANOTHER
    )


def unreachable(server: str, lost: Lost) -> RoostError:
    """Return the error of a server that does not answer."""
    if lost.sent:
        return Unavailable(f"the answer of {server} was lost: {lost.problem}", server=server)
    return Unavailable(
        f"no server answers at {server}: {lost.problem}",
        hint="Maybe start one with `roost serve`, or name another with --server or ROOST_SERVER.",
        server=server,
    )


def _seconds(retry_after: str | None) -> float:
    """Return the seconds of a Retry-After; a date in it is left to our own pause."""
    given = (retry_after or "").strip()
    return float(given) if given.isascii() and given.isdigit() and len(given) < 7 else 0.0
