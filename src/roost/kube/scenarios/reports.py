"""What came of a scenario: where VMs went, how even it became, what moved, and whether that is as
expected. Pure: what `roost.kube.scenarios.runner` has seen goes in, a report comes out.
"""

import statistics
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from roost.kube.script.scenario import Expected

SUCCEEDED, FAILED = "Succeeded", "Failed"


class Place(Struct, kw_only=True):
    """One VM at the end."""

    vm: str
    first: str  # the node it was put on first
    node: str  # the node it is on now; empty: on none
    phase: str
    moves: int = 0
    reason: str = ""  # why it waits, in the scheduler's own words


class NodeState(Struct, kw_only=True):
    """One node at one moment; shares of what it has."""

    name: str
    zone: str = ""
    vms: int = 0
    cpu: float = 0.0  # used
    memory: float = 0.0
    cpu_asked: float = 0.0  # requested by pods: what the scheduler sees
    memory_asked: float = 0.0


class Spread(Struct, kw_only=True):
    """How even some nodes are: standard deviations, and how far the extremes lie apart."""

    vms_deviation: float = 0.0
    cpu_deviation: float = 0.0
    memory_deviation: float = 0.0
    cpu_range: float = 0.0  # highest less lowest
    memory_range: float = 0.0
    cpu_mean: float = 0.0
    cpu_above: float = 0.0  # highest less mean


class Move(Struct, kw_only=True):
    """One migration of a VM, as its status told."""

    vm: str
    number: int
    cause: str = ""  # eviction or request
    source: str = ""
    wanted: str = ""  # where somebody would have liked it
    actual: str = ""  # where the scheduler put it
    phase: str = ""
    reason: str = ""
    started_s: float = 0.0  # since the scenario began
    seconds: float = 0.0
    rounds: int = 0
    copied_bytes: int = 0
    downtime_ms: float = 0.0

    @property
    def elsewhere(self) -> bool:
        """Say whether the scheduler chose another node than was wanted."""
        return bool(self.phase == SUCCEEDED and self.wanted and self.actual != self.wanted)

    @property
    def ended_s(self) -> float:
        """Return when the migration was over."""
        return self.started_s + self.seconds


class Return(Struct, kw_only=True):
    """A VM that came back to a node which it had left."""

    vm: str
    node: str
    away_s: float


class Evictions(Struct, kw_only=True):
    """What became of the wishes to evict."""

    asked: int = 0
    converted: int = 0  # answered with 429 and a migration in the background
    repeated: int = 0  # of VMs that were moving already
    refused: int = 0  # by cool-down, or because nothing could be done


class Sample(Struct, kw_only=True):
    """The CPU use of all nodes at one moment."""

    at_s: float
    mean: float
    highest: float
    lowest: float
    deviation: float


class Judgement(Struct, kw_only=True):
    """One expectation, and what was found."""

    expected: str
    found: str
    met: bool


class Report(Struct, kw_only=True):
    """The whole report of a scenario."""

    scenario: str
    about: str
    seed: int
    server: str = ""
    version: str = ""
    own_cluster: bool = False
    namespace: str = ""
    seconds: float = 0.0  # from the first VM to the end
    placed_s: float = 0.0  # until the scheduler had answered for every VM
    vms: list[Place] = []
    nodes_before: list[NodeState] = []  # when all VMs were placed
    nodes: list[NodeState] = []  # at the end
    spread_before: Spread = field(default_factory=Spread)
    spread: Spread = field(default_factory=Spread)
    violations: list[str] = []
    moves: list[Move] = []
    evictions: Evictions = field(default_factory=Evictions)
    returns: list[Return] = []
    time_to_balance_s: float | None = None  # None: it was not even at the end
    descheduler_rounds: int = 0
    samples: list[Sample] = []
    judgements: list[Judgement] = []
    notes: list[str] = []

    @property
    def pending(self) -> list[Place]:
        """Return the VMs that have no node."""
        return [place for place in self.vms if not place.node]

    @property
    def succeeded(self) -> list[Move]:
        """Return the migrations that came to their end."""
        return [move for move in self.moves if move.phase == SUCCEEDED]

    @property
    def aborted(self) -> list[Move]:
        """Return the migrations that did not."""
        return [move for move in self.moves if move.phase == FAILED]

    @property
    def met(self) -> bool:
        """Say whether every expectation was met."""
        return all(each.met for each in self.judgements)


def spread_of(nodes: Sequence[NodeState]) -> Spread:
    """Return how even some nodes are."""
    if not nodes:
        return Spread()
    cpu, memory = [node.cpu for node in nodes], [node.memory for node in nodes]
    return Spread(
        vms_deviation=_rounded(statistics.pstdev([node.vms for node in nodes])),
        cpu_deviation=_rounded(statistics.pstdev(cpu)),
        memory_deviation=_rounded(statistics.pstdev(memory)),
        cpu_range=_rounded(max(cpu) - min(cpu)),
        memory_range=_rounded(max(memory) - min(memory)),
        cpu_mean=_rounded(statistics.fmean(cpu)),
        cpu_above=_rounded(max(cpu) - statistics.fmean(cpu)),
    )


def sample_of(at_s: float, cpu: Sequence[float]) -> Sample:
    """Return the CPU use of all nodes at one moment."""
    cpu = list(cpu) or [0.0]
    return Sample(
        at_s=round(at_s, 2),
        mean=_rounded(statistics.fmean(cpu)),
        highest=_rounded(max(cpu)),
        lowest=_rounded(min(cpu)),
        deviation=_rounded(statistics.pstdev(cpu)),
    )


def returns_of(moves: Iterable[Move]) -> list[Return]:
    """Return every way back: a VM that comes to a node which it left by an earlier move."""
    left: dict[tuple[str, str], float] = {}
    found = []
    done = [move for move in moves if move.phase == SUCCEEDED]
    for move in sorted(done, key=lambda each: (each.ended_s, each.number)):
        if (gone_s := left.get((move.vm, move.actual))) is not None:
            away_s = round(move.ended_s - gone_s, 3)
            found.append(Return(vm=move.vm, node=move.actual, away_s=away_s))
        left[move.vm, move.source] = move.ended_s
    return found


def time_to_balance(samples: Sequence[Sample], within: float) -> float | None:
    """Return since when no node's use lies further above the mean; None when one does at the end.

    What was even for a while and then no longer does not count.
    """
    since: float | None = None
    for sample in samples:
        if sample.highest - sample.mean > within + 1e-9:
            since = None
        elif since is None:
            since = sample.at_s
    return since


def judge(expected: Expected, report: Report) -> list[Judgement]:
    """Return what was found for each thing that was expected."""
    pending, moves = len(report.pending), len(report.succeeded)
    elsewhere = sum(move.elsewhere for move in report.moves)
    found = [
        _exactly("pending", expected.pending, pending),
        _at_least("pending", expected.pending_at_least, pending),
        _at_least("moves", expected.moves_at_least, moves),
        _at_most("moves", expected.moves_at_most, moves),
        _at_least("moves elsewhere than wanted", expected.elsewhere_at_least, elsewhere),
        _at_most("aborted moves", expected.aborted_at_most, len(report.aborted)),
        _at_least(
            "evictions that became moves", expected.converted_at_least, report.evictions.converted
        ),
    ]
    judged = [each for each in found if each is not None]
    if (limit := expected.no_return_within) is not None:
        soon = [each for each in report.returns if each.away_s <= limit]
        said = "; ".join(f"{each.vm} to {each.node} after {each.away_s:.1f} s" for each in soon[:3])
        judged.append(
            Judgement(
                expected=f"no VM returns within {limit:g} s",
                found=f"{len(soon)} did: {said}" if soon else "none did",
                met=not soon,
            )
        )
    if (within := expected.balanced_within) is not None:
        judged.append(_balance(within, expected.balanced_after, report))
    if expected.compliant:
        judged.append(
            Judgement(
                expected="every rule holds",
                found="; ".join(report.violations[:3]) or "they do",
                met=not report.violations,
            )
        )
    return judged


def _balance(within: float, after: float | None, report: Report) -> Judgement:
    since = report.time_to_balance_s
    when = f" after {after:g} s" if after is not None else " at the end"
    above = f"{report.spread.cpu_above:.0%} above"
    return Judgement(
        expected=f"no node more than {within:.0%} above the mean{when}",
        found=f"{above}, even since {since:.1f} s" if since is not None else f"{above}, not even",
        met=since is not None and (after is None or since <= after),
    )


def _exactly(what: str, wanted: int | None, found: int) -> Judgement | None:
    return _number(f"{what}: {wanted}", wanted, found, found == wanted)


def _at_least(what: str, wanted: int | None, found: int) -> Judgement | None:
    return _number(f"{what}: at least {wanted}", wanted, found, found >= (wanted or 0))


def _at_most(what: str, wanted: int | None, found: int) -> Judgement | None:
    return _number(f"{what}: at most {wanted}", wanted, found, found <= (wanted or 0))


def _number(expected: str, wanted: int | None, found: int, met: bool) -> Judgement | None:
    return None if wanted is None else Judgement(expected=expected, found=str(found), met=met)


def _rounded(value: float) -> float:
    return round(value, 4) + 0.0  # no -0.0
