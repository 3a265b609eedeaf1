"""Two networks that could not be made leave the thread in the one that it was in."""

from pathlib import Path

import pytest

from tests.system import networks


def _here() -> tuple[Path, int]:
    """Return this thread's network, and how many files are open."""
    return Path("/proc/thread-self/ns/net").readlink(), len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(bool(networks.why_not()), reason="networks cannot be made here")
@pytest.mark.parametrize("part", ["Networks", "_ip", "_dnsmasq"])
def test_what_fails_half_way_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("not so")

    before = _here()
    monkeypatch.setattr(networks, part, fail)
    with pytest.raises(OSError, match="not so"), networks.two_networks(tmp_path):
        pass
    assert _here() == before
