"""What a VM uses: the newest reading, and rates since the one before it."""

from typing import Any

from roost.control.vms.use import use_of


def reading(at_ms: int, more: str | None = None, **changes: int) -> dict[str, Any]:
    amounts = {"cpu_milli": 500, "memory_bytes": 1 << 20, "disk_bytes": 1 << 30}
    return {"at_ms": at_ms, "more": more, **amounts, **changes}


def test_the_newest_reading_counts_and_counters_are_rates() -> None:
    now = reading(25_000, '{"disk_read_bytes": 3000, "disk_write_bytes": 10, "rss_bytes": 7}')
    before = reading(10_000, '{"disk_read_bytes": 1500, "disk_write_bytes": 99}', cpu_milli=1)
    used = use_of([now, before])
    assert (used.cpu_milli, used.memory_bytes, used.disk_bytes) == (500, 1 << 20, 1 << 30)
    assert used.disk_read_bytes_per_s == 100
    assert used.disk_write_bytes_per_s is None  # it began anew
    assert used.net_sent_bytes_per_s is None  # nobody could read it
    assert used.more["rss_bytes"] == 7
    assert used.at.startswith("1970-01-01T00:00:25")


def test_one_reading_has_no_rates() -> None:
    used = use_of([reading(1, '{"disk_read_bytes": 3000}')])
    assert used.disk_read_bytes_per_s is None
    assert use_of([reading(1), reading(1)]).more == {}
