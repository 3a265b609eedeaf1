"""Where roost caches for its user."""

from pathlib import Path

import pytest

from roost.base.cachefolder import cache_folders


def test_a_named_folder_comes_first_and_an_empty_name_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = tmp_path / ".cache" / "roost"

    monkeypatch.setenv("ROOST_CACHE", "/named")
    assert list(cache_folders()) == [Path("/named"), home]
    monkeypatch.setenv("ROOST_CACHE", "")
    assert list(cache_folders()) == [home]
    monkeypatch.delenv("ROOST_CACHE")
    assert list(cache_folders()) == [home]
