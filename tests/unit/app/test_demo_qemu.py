"""The parts of `roost demo --qemu` that need no processes."""

import asyncio
from pathlib import Path

import pytest

from roost.app.demoqemu import Counted, build_guest, counted_across, read_counter
from roost.base.errors import InvalidRequest


def test_a_counter_is_read_up_to_its_last_whole_line() -> None:
    assert read_counter("GUEST-UP uptime=1.00\r\nTICK 1 1.02\r\nTICK 2 1.07\r\nTICK 3 1") == [1, 2]


@pytest.mark.parametrize(
    ("source", "target", "counted"),
    [
        ("TICK 7 1.02\r\n", "TICK 8 1.07\r\n", Counted(7, 8)),
        ("TICK 7 1.02\r\nTIC", "K 8 1.07\r\n", Counted(7, 8)),
        ("TICK 7 1.02\r\n", "TICK 9 1.07\r\n", Counted(7, 9)),
        ("TICK 7 1.02\r\n", "TICK 8 1", None),
        ("", "TICK 8 1.07\r\n", None),
    ],
    ids=["whole lines", "a line in two halves", "a number is lost", "not yet", "nothing before"],
)
def test_a_counter_is_compared_across_a_move(
    source: str, target: str, counted: Counted | None
) -> None:
    assert counted_across(source, target) == counted


def test_without_qemu_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidRequest, match="QEMU is not installed") as caught:
        asyncio.run(build_guest())
    assert "make parts" in str(caught.value.hint)
