"""A profile as a person reads it."""

from io import StringIO

from rich.console import Console

from roost.cli.show.profiles import profile
from roost.control.learning.profiling import DISK, Beside, profile_of
from roost.wire.profiles import CleaningBody, LifetimeBody, ProfileBody
from tests.unit.control.test_profiling import row, week

DAY_S = 86_400


def shown(body: ProfileBody, resource: str = "cpu") -> str:
    """Return a profile as it is printed, each run of blanks as one."""
    console = Console(width=200, file=StringIO())
    console.print(profile(body, resource, 200))
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_what_waits_is_a_bottleneck_and_what_peaks_along_is_not() -> None:
    reads = week().figures["cpu_milli.mean"] * 1000
    told = shown(profile_of(row(), week(**{DISK[0]: reads}), 1))
    assert "bottleneck: when cpu peaks, waiting for io is" in told
    assert "at peaks: when cpu peaks, disk io is" in told
    assert "bottleneck: when cpu peaks, disk io" not in told


def test_counts_of_cleaning_and_what_is_left_of_a_life_are_told() -> None:
    beside = Beside(
        CleaningBody(40_000, 2, 0, 1, 3, 0, 1),
        lifetime=LifetimeBody(DAY_S, 7200, 3 * DAY_S, None, 53),
    )
    told = shown(profile_of(row(), week(), 1, beside))
    assert (
        "readings: 40,000 kept of the week; dropped 2 no number, 1 of another time; "
        "repaired 3 sent twice, 1 where counters began anew"
    ) in told
    assert (
        "lifetime: 24.0 h old; of such VMs one in ten in 2.0 h, half in 3.0 days are gone "
        "(53 seen of this age)"
    ) in told
    plain = shown(profile_of(row(), week(), 1))
    assert "readings:" not in plain
    assert "lifetime:" not in plain


def test_a_server_that_tells_nothing_of_a_resource_is_said() -> None:
    body = profile_of(row(), week(), 1)
    body.resources.pop("network")
    assert "this server tells nothing of network" in shown(body, "network")
