"""The builder of the tests' Debian, with a stand-in for mmdebstrap that runs its hooks."""

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

_TOOL = Path(__file__).parents[3] / "tools" / "build-debian"
_STAND_IN = """#!/bin/sh
for word; do
    case $word in
    --essential-hook=*) hook=${word#--essential-hook=} ;;
    */root) root=$word ;;
    esac
done
mkdir -p "$root" && exec sh -c "$hook" exec "$root"
"""


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the tool as a module; mmdebstrap is the stand-in."""
    loader = importlib.machinery.SourceFileLoader("build_debian", str(_TOOL))
    spec = importlib.util.spec_from_loader("build_debian", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    loader.exec_module(module)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mmdebstrap").write_text(_STAND_IN)
    (programs / "mmdebstrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(module, "sources", list)
    monkeypatch.setattr(module, "codename", lambda: "bookworm")
    return module


@pytest.mark.parametrize("name", ["plain", "a b", '"; touch evil; "', "$(touch evil)", "it's"])
def test_a_cache_of_any_name_is_no_command(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    beside = tmp_path / name
    builder.install(beside, beside / "root")
    for path, text in builder.FILES.items():
        assert (beside / "root" / path).read_text() == text
    assert not (tmp_path / "evil").exists()


def test_what_killed_builds_have_left_is_removed(builder: ModuleType, tmp_path: Path) -> None:
    for name in (".debian-abc/root/etc", "debian-kept"):
        (tmp_path / name).mkdir(parents=True)
    builder.remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "debian-kept"]
