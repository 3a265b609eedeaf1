"""What a plain install takes on disk: roost and all that it requires, as installed here.

Counted from the files that each distribution says are its own, so that no package index is asked;
bytes of compiled Python are left out, as pip may or may not write them. What roost itself is and
requires is read from the checkout: what an editable install says of it may be older.
"""

import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[2]


def plain_install() -> dict[str, int]:
    """Return the bytes of every distribution that `pip install roost` brings, by name."""
    sources = (REPOSITORY / "src").rglob("*")
    found = {"roost": sum(p.stat().st_size for p in sources if p.is_file() and p.suffix != ".pyc")}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    waiting = wanted_of(project["dependencies"], frozenset())
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        try:
            made = distribution(each[0])
        except PackageNotFoundError:
            continue  # for another platform
        found[each[0]] = bytes_of(made)
        waiting += wanted_of(made.requires or (), each[1])
    return found


def wanted_of(
    requirements: Iterable[str], extras: frozenset[str]
) -> list[tuple[str, frozenset[str]]]:
    """Return what of such requirements applies here, with these extras."""
    wanted = []
    for text in requirements:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": e}) for e in (extras or {""})):
            wanted.append((requirement.name.lower(), frozenset(requirement.extras)))
    return wanted


def bytes_of(made: Distribution) -> int:
    """Return the size of a distribution's files."""
    total = 0
    for file in made.files or ():
        if file.suffix != ".pyc":
            path = file.locate()
            total += path.stat().st_size if path.is_file() else 0
    return total
