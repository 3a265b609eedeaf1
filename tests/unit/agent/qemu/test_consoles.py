"""The serial log of a VM that came by a move: offsets go on, nothing is missed or told twice."""

from pathlib import Path

from roost.agent.drivers.qemu.consoles import EARLIER_BYTES, keep_earlier, read_console


def test_a_log_goes_on_at_the_offset_that_it_had(tmp_path: Path) -> None:
    assert read_console(tmp_path, None, 100) == ("", 0, 0, 0)
    keep_earlier(tmp_path, 1000, b"old words\n")
    (tmp_path / "console.log").write_text("new words\n")
    assert read_console(tmp_path, None, 100) == ("old words\nnew words\n", 990, 1010, 1000)
    assert read_console(tmp_path, None, 6) == ("words\n", 1004, 1010, 1000)
    assert read_console(tmp_path, None, 12) == ("s\nnew words\n"[-12:], 998, 1010, 1000)
    assert read_console(tmp_path, 0, 100) == ("old words\nnew words\n", 990, 1010, 1000)
    assert read_console(tmp_path, 994, 3) == ("wor", 994, 997, 1000)
    assert read_console(tmp_path, 1000, 100) == ("new words\n", 1000, 1010, 1000)
    assert read_console(tmp_path, 1010, 100) == ("", 1010, 1010, 1000)
    assert read_console(tmp_path, None, 0).end == 1010


def test_what_is_here_already_moves_no_offset_of_the_earlier_host(tmp_path: Path) -> None:
    (tmp_path / "console.log").write_text("abc")
    keep_earlier(tmp_path, 1_000_000, bytes(2 * EARLIER_BYTES))
    assert read_console(tmp_path, None, 0).end == 1_000_000
    assert len(read_console(tmp_path, 0, 1 << 20).text) == EARLIER_BYTES + 3
