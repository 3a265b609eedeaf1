"""Series of a plane: who is believed, who may read, what is brought in, a store that is broken."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roost.base.errors import InvalidRequest, NoFit, NotFound, SeriesUnavailable
from roost.model.series import DAY_MS, FIGURES, HOUR_MS, MINUTE_MS
from roost.parts.access import Principal
from roost.wire.agentlink import SampleInfo
from roost.wire.constraints import CreateConstraint
from roost.wire.series import ImportSeries, Span
from tests.integration.control.rig import ADMIN, Rig, run

MEMBER = Principal("m", "member", project="elsewhere")


async def send(rig: Rig, host: str, vm: str, cpu_milli: int, at_ms: int | None = None) -> None:
    at_ms = rig.clock.wall_ms() if at_ms is None else at_ms
    rig.plane.readings.take(rig.number(host), [SampleInfo(vm, at_ms, cpu_milli, 1 << 28)])
    await rig.plane.readings.flush()


def test_a_vm_s_series_is_told_in_columns(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        web = await rig.running("web")
        now = rig.clock.wall_ms()
        for step in range(3):
            await send(rig, "h1", web.id, 100 * step, now + 15_000 * step)
        span = Span(figure=["cpu_milli"], since_ms=now)
        found = await rig.plane.series.of_vm("web", None, span, ADMIN)
        assert (found.kind, found.name) == ("vm", web.id)
        assert found.at_ms == [now, now + 15_000, now + 30_000]
        assert found.figures == {"cpu_milli": [0, 100, 200]}
        rolled = await rig.plane.series.of_vm(
            "web", None, Span(figure=["cpu_milli"], since_ms=0, resolution="1d"), ADMIN
        )
        assert rolled.figures["cpu_milli.max"] == [200]
        with pytest.raises(NotFound):
            await rig.plane.series.of_vm("web", None, span, MEMBER)
        with pytest.raises(InvalidRequest, match="no figure 'cpu'"):
            await rig.plane.series.of_vm("web", None, Span(figure=["cpu"]), ADMIN)

    run(database_url, test, dated=True)


async def nobody_speaks_for_another(rig: Rig) -> None:
    await rig.host("h1")
    await rig.host("h2", cpu=1)
    web = await rig.running("web")
    await send(rig, "h2", web.id, 9999)
    await send(rig, "h2", "vm-that-is-not", 9999)
    assert (await rig.get("web")).used is None
    await send(rig, "h1", web.id, 5)
    used = (await rig.get("web")).used
    assert used is not None
    assert used.cpu_milli == 5


def test_an_agent_is_believed_of_its_own_vms_alone(sqlite_url: str) -> None:
    run(sqlite_url, nobody_speaks_for_another)


def test_a_build_that_believes_everybody_is_found(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roost.control.series import recording

    def on_any_host(roster, key):  # type: ignore[no-untyped-def]
        return roster.entry("h2") if roster.entry("h2") else roster.entry("h1")

    monkeypatch.setattr(recording, "host_of_claim", on_any_host)
    with pytest.raises(AssertionError):
        run(sqlite_url, nobody_speaks_for_another)


def test_a_series_of_more_than_an_answer_goes_on(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roost.control.series import reading

    monkeypatch.setattr(reading, "MOST_TOLD", 10)

    async def test(rig: Rig) -> None:
        await rig.host("h1")
        now = rig.clock.wall_ms()
        for minute in range(12):
            await send(rig, "h1", "", minute, now + minute * MINUTE_MS)
        told: list[float | None] = []
        since: int | None = now - 20 * DAY_MS
        pages = 0
        while since is not None:
            span = Span(figure=["cpu_milli"], since_ms=since, until_ms=now + HOUR_MS)
            page = await rig.plane.series.of_host("h1", span)
            told += page.figures.get("cpu_milli", [])
            since, pages = page.next_ms, pages + 1
        assert told == list(range(12))
        assert pages == 3  # a fortnight without any, ten, and two

    run(sqlite_url, test, dated=True)


@settings(max_examples=8, deadline=None)
@given(
    st.sets(st.sampled_from(sorted(FIGURES)), min_size=1, max_size=4),
    st.lists(st.one_of(st.none(), st.integers(0, 10**6)), min_size=2, max_size=6),
)
@example({"disk_reads", "cpu_milli"}, [1, 5, None, 3])
def test_what_is_told_of_any_figures_can_be_brought_in_elsewhere(
    figures: set[str], values: list[int | None]
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.host("h2")
        now = rig.clock.wall_ms()
        at_ms = [now - 10_000 * (len(values) - place) for place in range(len(values))]
        columns: dict[str, list[float | None]] = {name: [*values] for name in sorted(figures)}
        body = ImportSeries(kind="host", name="h1", at_ms=at_ms, figures=columns)
        await rig.plane.series.bring(body, ADMIN)
        span = Span(since_ms=now - HOUR_MS)
        one = await rig.plane.series.of_host("h1", span)
        if one.at_ms:
            body = ImportSeries(kind="host", name="h2", at_ms=one.at_ms, figures=one.figures)
            await rig.plane.series.bring(body, ADMIN)
        other = await rig.plane.series.of_host("h2", span)
        assert (other.at_ms, other.figures) == (one.at_ms, one.figures)

    with TemporaryDirectory() as folder:
        run(f"sqlite:///{folder}/roost.db", test, dated=True)


def test_a_rate_without_its_counter_is_not_taken_for_a_figure(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        body = ImportSeries(
            kind="host", name="h1", at_ms=[rig.clock.wall_ms()], figures={"disk_reads_per_s": [1.0]}
        )
        with pytest.raises(InvalidRequest, match="no figure 'disk_reads_per_s'"):
            await rig.plane.series.bring(body, ADMIN)

    run(sqlite_url, test, dated=True)


def test_readings_of_elsewhere_are_brought_in_once(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        then = rig.clock.wall_ms() - 30 * DAY_MS  # older than raw ones are kept
        body = ImportSeries(
            kind="host", name="h1", at_ms=[then, then + 1000, then + 2000],
            figures={"cpu_milli": [1.0, None, 3.0]},
        )  # fmt: skip
        for _ in range(2):
            found = await rig.plane.series.bring(body, ADMIN)
            assert (found.kept, found.left_out) == (2, 1)
        span = Span(since_ms=then, until_ms=then + HOUR_MS)
        assert (await rig.plane.series.of_host("h1", span)).figures == {"cpu_milli": [1, 3]}

    run(database_url, test, dated=True)


@pytest.mark.parametrize(
    "change",
    [
        {"figures": {"cpu": [1.0]}},
        {"figures": {"cpu_milli": [1.0, 2.0]}},
        {"at_ms": [10**13]},
    ],
    ids=["unknown figure", "too many values", "the future"],
)
def test_an_import_that_makes_no_sense_is_refused(change: dict, sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        given = {"kind": "host", "name": "h1", "at_ms": [1], "figures": {"cpu_milli": [1.0]}}
        with pytest.raises(InvalidRequest):
            await rig.plane.series.bring(ImportSeries(**{**given, **change}), ADMIN)

    run(sqlite_url, test)


async def all_else_goes_on(rig: Rig, path: Path) -> None:
    await rig.host("h1")
    path.write_bytes(b"no database" * 1000)
    rig.plane.readings.take(rig.number("h1"), [SampleInfo("", rig.clock.wall_ms(), 1, 1)])
    web = await rig.running("web")
    assert web.host == "h1"
    assert (await rig.get("web")).used is None
    health = rig.plane.readiness()
    assert health.status == "ready"
    assert "series are not kept" in health.detail
    assert b"roost_series_unusable 1.0" in rig.plane.telemetry.text()
    assert [each.check for each in (await rig.plane.doctor()).troubles] == ["series"]
    # What is not known is missing, and a rule that reads it does not hold.
    rule = CreateConstraint(name="r", expression="host.used.cpu < 4000", force=True)
    await rig.plane.constraints.create(rule, ADMIN)
    with pytest.raises(NoFit):
        await rig.create("late")
    now = rig.clock.wall_ms()
    for step in (1, 2):
        read = SampleInfo("", now + step, 10 * step, 1)
        rig.plane.readings.take(rig.number("h1"), [read])
        with pytest.raises(SeriesUnavailable):
            await rig.plane.readings.flush()
    path.unlink()
    await rig.plane.readings.flush()  # what waited is written
    span = Span(since_ms=now, figure=["cpu_milli"])
    assert (await rig.plane.series.of_host("h1", span)).figures == {"cpu_milli": [1, 10, 20]}
    assert (await rig.plane.doctor()).troubles == []
    assert rig.plane.readiness().detail == ""
    await rig.plane.constraints._measured.look()
    assert (await rig.create("later")).host == "h1"


def test_a_store_that_is_broken_stops_nothing_and_is_said(sqlite_url: str, tmp_path: Path) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    run(sqlite_url, lambda rig: all_else_goes_on(rig, path.with_name(f"{path.stem}-series.db")))


def test_one_process_files_and_deletes(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await send(rig, "h1", "", 7)
        begin = rig.clock.wall_ms()
        rig.clock.move(2 * 3600)
        for _ in range(3):
            rig.clock.move(20)
            await rig.plane.run_singletons()
        shelf = rig.series._shelf
        assert await shelf.due(2**60, 2**60) is None
        span = Span(since_ms=begin - 1, until_ms=begin + HOUR_MS, figure=["cpu_milli"])
        assert (await rig.plane.series.of_host("h1", span)).figures == {"cpu_milli": [7]}
        rig.clock.move(9 * 86_400)
        for _ in range(3):
            rig.clock.move(20)
            await rig.plane.run_singletons()
        assert (await rig.plane.series.of_host("h1", span)).figures == {}
        span.resolution = "1h"
        assert (await rig.plane.series.of_host("h1", span)).figures["cpu_milli.max"] == [7]

    run(sqlite_url, test, dated=True)


def test_every_figure_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "samples.md").read_text()
    assert [name for name in sorted(FIGURES) if f"`{name}`" not in text] == []
