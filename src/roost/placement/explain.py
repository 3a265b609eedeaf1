"""Why here, and why not there: every host's verdict beside the engine's answer.

The verdicts come from the whole-fleet columns of the filters, the scores from the kernel that
decides; a property test holds the two to each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from roost.fleet.layout import Int64Array
from roost.fleet.outlook import last_end, prediction
from roost.model.flow import Answer, PlaceRequest, ReasonCount, Rejection, Shortage
from roost.model.outlook import Predicted
from roost.model.reasons import Reason
from roost.placement.engine import NO_FIT, Engine
from roost.placement.rules.refusing import RuleRefusal
from roost.placement.verdicts import Verdicts, judge_hosts, shortages


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """What one host says to a request."""

    host: str
    fits: bool
    reasons: tuple[Reason, ...]
    score: int | None
    shortages: tuple[Shortage, ...]
    rules: tuple[RuleRefusal, ...] = ()  # which parts of rules refused it, with its values
    predicted: Predicted | None = None  # with its ranges and age, as far as known
    ends_s: int | None = None  # when its last VM is expected to be gone; None: none or unknown


@dataclass(frozen=True, slots=True)
class Explanation:
    """An answer with the counts behind it; verdicts are made when they are looked at."""

    request: PlaceRequest
    answer: Answer
    reasons: tuple[ReasonCount, ...]
    fitting: int
    _verdicts: Verdicts
    _scores: Int64Array

    def __len__(self) -> int:
        return len(self._verdicts.rows)

    def verdicts(self) -> Iterator[HostVerdict]:
        """Yield every host's verdict in host-number order."""
        for index in range(len(self)):
            yield self._verdict(index)

    def verdict(self, host: str) -> HostVerdict:
        """Return one host's verdict."""
        row = self._verdicts.question.fleet.row(host)
        return self._verdict(int((self._verdicts.rows == row).argmax()))

    def _verdict(self, index: int) -> HostVerdict:
        question = self._verdicts.question
        row = int(self._verdicts.rows[index])
        score = int(self._scores[row])
        reasons = self._verdicts.reasons(index)
        return HostVerdict(
            host=question.fleet.hosts.names[row],
            fits=not reasons,
            reasons=reasons,
            score=None if score == NO_FIT else score,
            shortages=shortages(question, row) if reasons else (),
            rules=question.rules.refusals(question.terms, row) if reasons else (),
            predicted=prediction(question.fleet, row),
            ends_s=last_end(question.fleet, row),
        )


def explain(
    engine: Engine, request: PlaceRequest, *, runners_up: int = 3, cursor: int | None = None
) -> Explanation:
    """Answer a request and say what every host had to say to it."""
    answer = engine.place(request, runners_up=runners_up, cursor=cursor)
    verdicts = judge_hosts(engine.question(request))
    counts = answer.reasons if isinstance(answer, Rejection) else verdicts.counts()
    fitting = int((~verdicts.failed.any(axis=0)).sum())
    return Explanation(request, answer, counts, fitting, verdicts, engine.scores(request))
