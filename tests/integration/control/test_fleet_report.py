"""The report on a whole fleet: asked over HTTP and typed, made in the background, kept a while."""

import asyncio
import json
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from roost.base.errors import SeriesUnavailable
from roost.base.units import GIB
from roost.cli.show.drawing.svg import forecast
from roost.cli.show.profiles import profile
from roost.control.learning.reporting import KEPT_S
from roost.model.series import DAY_MS, Reading, Subject
from roost.parts.access import Principal
from roost.wire.profiles import ProfileQuery
from roost.wire.reports import FleetReport, ReportQuery
from tests.integration.control.rig import ADMIN, Rig, run
from tests.integration.control.test_analyze_commands import says, typed
from tests.integration.control.test_learning import DAILY, STEP_MS, used


async def fleet(rig: Rig) -> None:
    """One host with a day's service that asks for too much and a VM that does nothing."""
    web = await rig.running("web", cpu=2)
    await used(rig, Subject("vm", web.id), *DAILY, days=7)
    old = await rig.running("old")
    now = rig.clock.wall_ms()
    first = now - 7 * DAY_MS
    readings = []
    for at in range(first - first % STEP_MS, now, STEP_MS):
        sent = (at - first) / 1e6  # bytes so far, a thousandth of a byte per second
        figures = {"cpu_milli": 2.0, "memory_bytes": GIB / 8}
        figures |= {"net_received_bytes": sent, "net_sent_bytes": sent}
        readings.append(Reading(Subject("vm", old.id), at, figures))
    await rig.series.put(readings, now, old=True)
    await used(rig, Subject("host", "h1"), *DAILY, days=7)


async def made(rig: Rig) -> FleetReport:
    reporting = rig.plane.learning.reporting
    asked = asyncio.create_task(reporting.report(ReportQuery()))
    await asyncio.sleep(0)
    await reporting.make()
    found = await asked
    assert found.report is not None
    return found.report


def test_a_report_says_what_a_week_says(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await fleet(rig)
        report = await made(rig)
        assert (report.hosts, report.vms, report.unread_hosts) == (1, 2, 0)
        assert len(report.hours) == 168
        assert report.hours[-1].at_ms == report.origin_ms - 3_600_000
        assert all(hour.cpu is not None for hour in report.hours)
        assert [each.name for each in report.zombies] == ["old"]
        assert report.zombies[0].host == "h1"
        wasted = {(each.name, each.resource) for each in report.oversized}
        assert ("web", "cpu") in wasted
        assert report.saving.cpu_milli > 1000
        assert [each.host for each in report.levels] == ["h1"]

    run(database_url, test, dated=True)


def test_a_profile_names_who_peaks_along_in_the_last_report(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        vms = [await rig.running(name) for name in ("web", "shop", "other")]
        night = (*DAILY[12:], *DAILY[:12])
        for vm, course in zip(vms, (DAILY, DAILY, night), strict=True):
            await used(rig, Subject("vm", vm.id), *course, days=7)
        ask = rig.plane.learning.profile
        assert (await ask("web", ProfileQuery(hours=1), ADMIN)).peaks_with is None
        report = await made(rig)
        found = await ask("web", ProfileQuery(hours=1), ADMIN)
        assert found.peaks_with is not None
        assert found.peaks_with.origin_ms == report.origin_ms
        assert [each.name for each in found.peaks_with.vms] == ["shop"]
        assert (found.peaks_with.count, found.peaks_with.hosts) == (2, 1)
        console = Console(width=200, file=StringIO())
        console.print(profile(found, "cpu", 200))
        assert "peaks with:   shop (at " in console.file.getvalue()  # type: ignore[attr-defined]
        assert (await ask("other", ProfileQuery(hours=1), ADMIN)).peaks_with is None
        member = Principal("m", "member", project="default")
        assert (await ask("web", ProfileQuery(hours=1), member)).peaks_with is None
        rig.clock.move(2 * DAY_MS / 1000)
        assert (await ask("web", ProfileQuery(hours=1), ADMIN)).peaks_with is None

    run(sqlite_url, test, dated=True)


def test_a_report_is_kept_for_a_while_and_made_anew_after_that(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        first = await made(rig)
        rig.clock.move(KEPT_S - 1)
        again = await rig.plane.learning.reporting.report(ReportQuery())
        assert again.report == first
        rig.clock.move(2)
        assert (await made(rig)).origin_ms > first.origin_ms

    run(sqlite_url, test, dated=True)


def test_who_asks_while_it_is_made_is_told_how_far_it_is(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        monkeypatch.setattr("roost.control.learning.reporting.WAIT_S", 0.01)
        await rig.host("h1")
        found = await rig.plane.learning.reporting.report(ReportQuery())
        assert (found.done, found.total, found.report) == (0, 1, None)
        await rig.plane.learning.reporting.make()
        assert (await rig.plane.learning.reporting.report(ReportQuery())).report is not None

    run(sqlite_url, test, dated=True)


def test_a_store_that_cannot_be_read_is_said_and_tried_again(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        reporting = rig.plane.learning.reporting
        reader = reporting._reader

        class Away:
            async def read(self, *_: object) -> None:
                raise SeriesUnavailable("the store is away")

        reporting._reader = Away()  # type: ignore[assignment]
        with pytest.raises(SeriesUnavailable):
            await made(rig)
        reporting._reader = reader
        assert (await made(rig)).hosts == 1

    run(sqlite_url, test, dated=True)


@pytest.mark.parametrize("trouble", [SeriesUnavailable, ZeroDivisionError])
@pytest.mark.parametrize("late", [False, True], ids=["while it is made", "after it"])
def test_whatever_ends_a_report_is_told_once_to_who_asked(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, trouble: type[Exception], *, late: bool
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        reporting, reads = rig.plane.learning.reporting, 0
        reader, asked = reporting._reader, asyncio.Event()

        class Broken:
            async def read(self, *_: object) -> None:
                nonlocal reads
                reads += 1
                await asked.wait()
                raise trouble("out of order")

        reporting._reader = Broken()  # type: ignore[assignment]
        serving = asyncio.create_task(reporting.serve())
        if late:
            with monkeypatch.context() as patch:
                patch.setattr("roost.control.learning.reporting.WAIT_S", 0.0)
                assert (await reporting.report(ReportQuery())).report is None
        asked.set()
        if late:
            await asyncio.wait_for(reporting._ended.wait(), 10)
        with pytest.raises(trouble, match="out of order"):
            await reporting.report(ReportQuery())
        assert reads == 1
        assert not serving.done()
        serving.cancel()
        reporting._reader = reader
        assert (await made(rig)).hosts == 1

    run(sqlite_url, test, dated=True)


def test_the_report_is_typed_and_written_as_a_page(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await made(rig)
        file = tmp_path / "fleet.html"
        told = await says("fleet", "--html", str(file))
        assert "2 VMs on 1 hosts" in told
        assert "Who asks for too much" in told
        assert "Zombies" in told
        text = file.read_text()
        for word in ("Busy hours", "Hosts that will be short", "Asks for too much", "Zombies (1)"):
            assert word in text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "<script" not in text
        document = json.loads(await says("fleet", "--top", "1", "-o", "json"))
        assert document["vms"] == 2
        assert len(document["oversized"]) == 1 < document["oversized_count"]

    typed(sqlite_url, monkeypatch, test)


def test_a_picture_is_saved_as_svg_and_png(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        web = await rig.running("web")
        await used(rig, Subject("vm", web.id), *DAILY, days=7)
        drawn = tmp_path / "web.svg"
        assert "wrote" in await says("vm", "web", "--save", str(drawn))
        tags = [each.tag.rpartition("}")[2] for each in ElementTree.parse(drawn).iter()]
        assert tags.count("polyline") == 2
        assert tags.count("polygon") == 1
        pytest.importorskip("matplotlib", reason="pip install 'roost[pictures]'")
        await says("vm", "web", "--resource", "memory", "--save", str(tmp_path / "web.png"))
        assert (tmp_path / "web.png").read_bytes()[:4] == b"\x89PNG"
        assert "only .svg and .png" in await says("vm", "web", "--save", "web.gif", code=2)

    typed(sqlite_url, monkeypatch, test)


def test_a_band_is_left_out_where_there_is_no_bound(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        web = await rig.running("web")
        await used(rig, Subject("vm", web.id), *DAILY, days=7)
        body = await rig.plane.learning.profile("web", ProfileQuery(hours=24), ADMIN)
        assert forecast(body, "cpu", str).count("<polygon") == 1
        ahead = body.resources["cpu"].forecast
        ahead.low[12:72] = ahead.high[12:72] = [None] * 60
        assert forecast(body, "cpu", str).count("<polygon") == 2

    run(sqlite_url, test, dated=True)
