"""A word to the user while kernels compile, and only then."""

import threading

import pytest

from roost.app import kernels


def test_a_quick_load_says_nothing() -> None:
    said: list[str] = []
    kernels.warm(lambda: None, said.append)
    assert said == []


def test_a_slow_load_says_that_it_compiles_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "PATIENCE_S", 0.01)
    said: list[str] = []
    heard = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        heard.set()

    kernels.warm(lambda: heard.wait(10), say)
    assert len(said) == 1
    assert said[0].startswith("compiling kernels (first run only, about ")


def test_a_load_that_fails_takes_the_notice_back() -> None:
    def fail() -> None:
        raise RuntimeError("no compiler")

    before = threading.active_count()
    with pytest.raises(RuntimeError):
        kernels.warm(fail, lambda text: None)
    assert threading.active_count() <= before + 1


def test_compiling_everything_asks_every_kind_of_question() -> None:
    kernels.compile_everything()
