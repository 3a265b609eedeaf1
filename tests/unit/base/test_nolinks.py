"""Files opened below a folder, through no link."""

import os
from pathlib import Path

import pytest

from roost.base.nolinks import open_below


def test_a_file_below_is_opened(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("here")
    with os.fdopen(open_below(tmp_path, ("a", "b", "file"))) as file:
        assert file.read() == "here"


@pytest.mark.parametrize(
    "parts",
    [("..", "secret"), ("in", "..", "..", "secret"), ("../secret",), (), ("",), (".",),
     ("in", "to_file"), ("to_folder", "secret"), ("in", "/secret")],
)  # fmt: skip
def test_nothing_else_is(tmp_path: Path, parts: tuple[str, ...]) -> None:
    (tmp_path / "secret").write_text("no")
    (tmp_path / "below/in").mkdir(parents=True)
    (tmp_path / "below/in/to_file").symlink_to(tmp_path / "secret")
    (tmp_path / "below/to_folder").symlink_to(tmp_path)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(OSError, match=r"no name|symbolic links|Not a directory"):
        os.close(open_below(tmp_path / "below", parts))
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
