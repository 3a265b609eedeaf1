"""Kernel tests run with the compiler off and with bounds checked wherever they are."""

import re
from pathlib import Path

_ROOT = Path(__file__).parents[3]


def test_every_kernel_test_is_where_the_makefile_looks_for_them() -> None:
    named = re.search(r"^KERNEL_TESTS := (.+)$", (_ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named is not None
    folders = [_ROOT / folder for folder in named[1].split()]
    marked = [
        path
        for path in (_ROOT / "tests").rglob("test_*.py")
        if re.search(r"\bmark\.kernel\b", path.read_text("utf-8"))
    ]
    assert marked
    astray = [path for path in marked if not any(path.is_relative_to(each) for each in folders)]
    assert astray == []
