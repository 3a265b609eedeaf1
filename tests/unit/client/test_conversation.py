"""When a call is sent again, and when not: the conversation without any network."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from roost.base.errors import NoFit, NotFound, RoostError, Unavailable
from roost.client import routes
from roost.client.calls import Call
from roost.client.conversation import Answered, Lost, Manner, Outcome, Patience, Send, Wait
from roost.wire.bodies import CreateVM, DemandBody
from tests.unit.client.bodies import vm

VM = Answered(200, msgspec.json.encode(vm()))
REFUSED = Lost("connection refused", sent=False)
CUT = Lost("connection reset", sent=True)
CREATE = routes.create_vm(CreateVM(name="web-1", demand=DemandBody(cpu=2, memory="4GiB")))


def busy(code: str = "unavailable", after: str | None = None) -> Answered:
    detail = {"code": code, "message": "not now", "details": {}, "hint": None}
    return Answered(503, msgspec.json.encode({"error": detail}), after)


class Stage:
    """A server that answers from a list, and a clock that only waiting moves."""

    def __init__(self, *outcomes: Outcome, patience: Patience = Patience(30, 10)) -> None:  # noqa: B008
        self.outcomes = list(outcomes)
        self.sent: list[Send] = []
        self.waits: list[float] = []
        self.now = 0.0
        numbers = iter(range(1, 100))
        new_key: Callable[[], str] = lambda: f"key-{next(numbers)}"  # noqa: E731
        self.manner = Manner("http://s", "secret", patience, lambda: self.now, Random(1), new_key)

    def run(self, call: Call[Any]) -> Any:
        talk = self.manner.converse(call)
        outcome: Outcome = None
        while True:
            try:
                step = talk.send(outcome)
            except StopIteration as done:
                return done.value
            if isinstance(step, Wait):
                self.waits.append(step.seconds)
                self.now += step.seconds
                outcome = None
            else:
                self.sent.append(step)
                outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]


def test_a_create_that_was_cut_off_is_sent_again_with_the_same_key() -> None:
    stage = Stage(CUT, VM)
    assert stage.run(CREATE).name == "web-1"
    assert [send.headers["Idempotency-Key"] for send in stage.sent] == ["key-1", "key-1"]


def test_every_create_has_a_key_of_its_own_unless_one_is_given() -> None:
    stage = Stage(VM)
    stage.run(CREATE)
    stage.run(CREATE)
    stage.run(routes.create_vm(CreateVM(name="a", demand=DemandBody(cpu=1, memory=1)), key="mine"))
    assert [send.headers["Idempotency-Key"] for send in stage.sent] == ["key-1", "key-2", "mine"]


def test_retry_after_is_kept_to() -> None:
    stage = Stage(busy(after="7"), VM)
    stage.run(CREATE)
    assert stage.waits == [7.0]


def test_a_retry_after_beyond_patience_is_not_waited_for() -> None:
    stage = Stage(busy(after="31"))
    with pytest.raises(Unavailable):
        stage.run(CREATE)
    assert stage.waits == []


def test_patience_ends() -> None:
    stage = Stage(busy())
    with pytest.raises(Unavailable, match="not now"):
        stage.run(CREATE)
    assert 20 < stage.now <= 30
    assert len(stage.sent) < 30


def test_a_server_that_is_not_there_is_tried_for_less_long() -> None:
    stage = Stage(REFUSED, patience=Patience(30, 1))
    with pytest.raises(Unavailable, match="no server answers at http://s") as caught:
        stage.run(CREATE)
    assert stage.now <= 1
    assert caught.value.hint is not None
    assert "roost serve" in caught.value.hint


@pytest.mark.parametrize(
    "call",
    [routes.restart_vm("web-1"), routes.migrate_vm("web-1"), routes.create_join_token()],
    ids=["restart", "migrate", "join token"],
)
def test_what_would_happen_twice_is_not_sent_again_after_a_cut(call: Call[Any]) -> None:
    stage = Stage(CUT, VM)
    with pytest.raises(Unavailable, match="was lost"):
        stage.run(call)
    assert len(stage.sent) == 1


def test_what_never_reached_the_server_is_always_sent_again() -> None:
    assert Stage(REFUSED, VM).run(routes.restart_vm("web-1")).name == "web-1"


def test_no_host_fits_is_an_answer_and_not_retried() -> None:
    stage = Stage(busy("insufficient_resources", after="1"))
    with pytest.raises(NoFit) as caught:
        stage.run(CREATE)
    assert caught.value.code == "insufficient_resources"
    assert len(stage.sent) == 1


@pytest.mark.parametrize("code", ["placement_contended", "agent_service_unavailable"])
def test_contention_and_a_fleet_that_loads_are_retried(code: str) -> None:
    assert Stage(busy(code), VM).run(CREATE).name == "web-1"


def test_a_proxys_word_is_believed_only_for_what_may_be_repeated() -> None:
    gateway = Answered(504, b"<html>Gateway Timeout</html>")
    assert Stage(gateway, VM).run(CREATE).name == "web-1"
    with pytest.raises(Unavailable, match="504"):
        Stage(gateway, VM).run(routes.restart_vm("web-1"))


def test_a_deletion_whose_answer_was_lost_may_find_it_gone() -> None:
    gone = Answered(404, b"")
    assert Stage(CUT, gone).run(routes.delete_host("h1")) is None
    with pytest.raises(NotFound):
        Stage(gone).run(routes.delete_host("h1"))


def test_an_answer_that_cannot_be_read_names_the_versions() -> None:
    with pytest.raises(RoostError, match="cannot be read") as caught:
        Stage(Answered(200, b'{"id": 7}')).run(routes.get_vm("web-1"))
    assert caught.value.exit_code == 70


def test_a_server_that_is_not_ready_answers_all_the_same() -> None:
    waiting = Answered(503, b'{"status": "starting", "detail": "compiling kernels"}')
    assert Stage(waiting).run(routes.readiness()).detail == "compiling kernels"
