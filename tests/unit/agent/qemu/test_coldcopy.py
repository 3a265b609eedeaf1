"""What a cold move says when its disk could not be sent, and that its log cannot end it."""

import asyncio
import logging
from pathlib import Path

import pytest

from roost.agent.drivers.qemu.command import CONSOLE
from roost.agent.drivers.qemu.move.coldcopy import hand_console, plain_words
from roost.base.clock import RealClock
from roost.testing.orders import vm

REFUSED = (
    """qemu-img: Could not open 'json:{"driver": "raw", "file": {"driver": "nbd", "server": """
    """{"type": "inet", "host": "10.0.0.2", "port": "40101"}, "export": "disk0"}}': """
    "Failed to connect to '10.0.0.2:40101': Connection refused\n"
)


def test_a_target_that_is_gone_is_told_without_json() -> None:
    assert plain_words(REFUSED, 1) == (
        "qemu-img: Could not open the disk at the target: "
        "Failed to connect to '10.0.0.2:40101': Connection refused"
    )


def test_a_copy_that_was_killed_has_a_reason_too() -> None:
    assert plain_words("", -9) == "qemu-img was killed by signal 9 and said nothing"
    assert plain_words(" \n", 3) == "qemu-img ended with status 3 and said nothing"


@pytest.mark.parametrize("line", ["", "nowhere:at:all"])
def test_a_log_that_cannot_be_read_or_handed_over_ends_no_move(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / CONSOLE).mkdir()  # it can be opened, and not be read
    with caplog.at_level(logging.WARNING):
        asyncio.run(hand_console(tmp_path, vm("vm-1", endpoint={"agent": line}), RealClock()))
    assert "it cannot be read: [Errno 21]" in caplog.text
