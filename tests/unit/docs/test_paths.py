"""Documents name files that exist: a path that was moved is mended in the same change.

A path may be written from the top of the repository, from `src/roost`, or by its last parts
(`kernels/ranking.py`), as long as one tracked file or folder ends that way.
"""

import re
import subprocess
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

_TOP = Path(__file__).resolve().parents[3]
_DOCUMENTS = [
    _TOP / "README.md",
    _TOP / "CONTRIBUTING.md",
    *sorted((_TOP / "docs").rglob("*.md")),
    *sorted((_TOP / "changes").glob("*.md")),
]
_FOLDERS = r"(?:src|docs|tests|tools|benchmarks|examples|changes|\.ci)"
_QUOTED = re.compile(r"`([^`\s]+)`")
_PLAIN = re.compile(rf"(?<![\w/.-]){_FOLDERS}/[\w./*<>-]*[\w/*>]")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
# Names in examples and checklists: files that a reader is going to write.
_TO_BE_WRITTEN = re.compile(r"<|…|\.\.\.")


@cache
def _tracked() -> frozenset[str]:
    """Return every tracked path and every folder that holds one."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=_TOP,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    files = {line for line in listed if (_TOP / line).exists()}
    folders = {str(parent) for line in files for parent in PurePosixPath(line).parents}
    return frozenset(files | folders)


def _looks_like_a_path(word: str) -> bool:
    if re.match(rf"{_FOLDERS}/", word):
        return True
    return re.fullmatch(r"[\w*.-]+(?:/[\w*.-]+)*\.(?:py|md)", word) is not None


@cache
def _endings() -> frozenset[str]:
    """Return every way to write a tracked path by its last parts."""
    parts = [known.split("/") for known in _tracked()]
    return frozenset("/".join(p[start:]) for p in parts for start in range(len(p)))


def _exists(path: str) -> bool:
    wanted = path.partition("::")[0].rstrip("/")
    if "*" not in wanted:
        return wanted in _endings()
    pattern = re.compile(re.escape(wanted).replace(r"\*\*", ".*").replace(r"\*", "[^/]*"))
    return any(pattern.fullmatch(ending) for ending in _endings())


def unknown_paths(text: str, folder: Path) -> list[str]:
    """Return the paths that a document in `folder` names and the repository does not have."""
    words = {word for word in _QUOTED.findall(text) if _looks_like_a_path(word)}
    words.update(_PLAIN.findall(_LINK.sub("", text)))
    missing = [w for w in words if not _TO_BE_WRITTEN.search(w) and not _exists(w)]
    links = [link for link in _LINK.findall(text) if "://" not in link]
    missing += [link for link in links if not (folder / link).exists()]
    return sorted(set(missing))


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: str(path.relative_to(_TOP)))
def test_every_path_in_a_document_exists(document: Path) -> None:
    assert unknown_paths(document.read_text("utf-8"), document.parent) == []


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "See `control/keeper.py`, src/roost/nowhere.py, `tests/gone/` and [this](docs/gone.md)."

    assert unknown_paths(text, _TOP) == [
        "control/keeper.py",
        "docs/gone.md",
        "src/roost/nowhere.py",
        "tests/gone/",
    ]


def test_paths_may_be_written_short_or_with_stars() -> None:
    text = "`base/errors.py`, `tests/unit/docs/*.py`, [this](README.md), changes/<topic>.fixed.md"

    assert unknown_paths(text, _TOP) == []


def test_the_eight_files_of_the_flow_are_the_same_in_all_documents() -> None:
    readme, contributing, architecture = (
        (_TOP / name).read_text("utf-8")
        for name in ("README.md", "CONTRIBUTING.md", "docs/architecture.md")
    )
    listed = re.findall(r"^\d\. `src/roost/(\S+\.py)`", architecture, re.MULTILINE)

    assert len(listed) == 8
    for text in (readme, contributing):
        _, _, after = text.partition("in this order under `src/roost`:")
        assert re.findall(r"`(\S+\.py)`", after)[:8] == listed
