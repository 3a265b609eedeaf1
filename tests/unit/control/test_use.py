"""What a VM uses: the newest reading, and rates since the one before it."""

from roost.control.vms.use import use_of
from roost.model.series import Reading, Subject

WEB = Subject("vm", "vm-web")


def reading(at_ms: int, cpu_milli: int = 500, **more: float) -> Reading:
    amounts = {"memory_bytes": 1 << 20, "disk_bytes": 1 << 30}
    return Reading(WEB, at_ms, {"cpu_milli": cpu_milli, **amounts, **more})


def test_the_newest_reading_counts_and_counters_are_rates() -> None:
    now = reading(25_000, disk_read_bytes=3000, disk_write_bytes=10, rss_bytes=7)
    before = reading(10_000, 1, disk_read_bytes=1500, disk_write_bytes=99)
    used = use_of([now, before])
    assert (used.cpu_milli, used.memory_bytes, used.disk_bytes) == (500, 1 << 20, 1 << 30)
    assert used.disk_read_bytes_per_s == 100
    assert used.disk_write_bytes_per_s is None  # it began anew
    assert used.net_sent_bytes_per_s is None  # nobody could read it
    assert used.more["rss_bytes"] == 7
    assert used.at.startswith("1970-01-01T00:00:25")


def test_one_reading_has_no_rates() -> None:
    used = use_of([reading(1, disk_read_bytes=3000)])
    assert used.disk_read_bytes_per_s is None
    assert use_of([reading(1), reading(1)]).more == {}
