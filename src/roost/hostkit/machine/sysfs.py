"""Reads the small files of /proc and /sys. What cannot be read, or is broken, is None.

Everything that tells what a host has goes through here, so that a missing or broken file can be
told from a zero: callers turn None into unknown, which counts as full.
"""

from pathlib import Path

#: No file that is read here is larger, but for /proc/cpuinfo of a host with thousands of cores.
_MOST_BYTES = 16 * 2**20
#: Larger numbers are nonsense wherever they stand; limits that say "none" are below.
_MOST = 2**63
_MOST_CPUS = 2**16


def read_text(path: Path) -> str | None:
    """Return the text of a file."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def number(text: str | None, base: int = 10) -> int | None:
    """Return the number that a text is, if it is one and is not negative."""
    digits = (text or "").strip()
    if base == 16:
        digits = digits.removeprefix("0x")
    if not (digits.isascii() and digits.isalnum()) or len(digits) > 20:
        return None
    try:
        found = int(digits, base)
    except ValueError:
        return None
    return found if found < _MOST else None


def read_number(path: Path, base: int = 10) -> int | None:
    """Return the number that a file holds."""
    return number(read_text(path), base)


def cpu_list(text: str | None) -> frozenset[int] | None:
    """Return the processors of a list such as "0-3,8"; an empty line is an empty list."""
    if text is None or not text.endswith("\n"):
        return None
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = part.partition("-")
        low = number(first)
        high = number(last) if dash else low
        if low is None or high is None or not low <= high < _MOST_CPUS:
            return None
        found.update(range(low, high + 1))
    return frozenset(found)


def kib_line(text: str | None, name: str) -> int | None:
    """Return the bytes of the line "NAME: 123 kB" of a meminfo file, the node's number aside."""
    for line in (text or "").splitlines():
        before, colon, after = line.partition(":")
        if colon and before.split()[-1:] == [name]:
            kib = number(after.removesuffix("kB")) if after.endswith("kB") else None
            return None if kib is None else kib * 1024
    return None


def link_name(path: Path) -> str | None:
    """Return the last name of what a link points to."""
    try:
        return path.readlink().name or None
    except OSError:
        return None


def names_in(folder: Path) -> list[str] | None:
    """Return the names in a folder, sorted."""
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return None
