"""The table of defects names all seventeen, and only tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "job-defects.md"
_TEST = re.compile(r"`(tests/[^`]+\.py)::(test_\w+)`")


def rows() -> dict[int, str]:
    lines = PAGE.read_text().splitlines()
    found = [re.match(r"\| (\d+) \|", line) for line in lines]
    return {int(m[1]): line for m, line in zip(found, lines, strict=True) if m is not None}


def test_every_defect_has_a_test_that_exists() -> None:
    assert sorted(rows()) == list(range(1, 18))
    for number, line in rows().items():
        named = _TEST.findall(line)
        assert named, f"defect {number} has no test"
        for file, name in named:
            assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), (
                f"defect {number}: there is no {name} in {file}"
            )
