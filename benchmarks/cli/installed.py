"""What a plain install takes on disk: roost and all that it requires, as installed here.

Counted from the files that each distribution says are its own, so that no package index is asked;
bytes of compiled Python are left out, as pip may or may not write them.
"""

from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement


def plain_install(name: str = "roost") -> dict[str, int]:
    """Return the bytes of every distribution that `pip install roost` brings, by name."""
    found: dict[str, int] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(name, frozenset())]
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
        waiting += wanted_by(made, each[1])
    return found


def wanted_by(made: Distribution, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """Return what a distribution requires here, with these extras of it."""
    wanted = []
    for text in made.requires or ():
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
