"""What a plane learns from the store of series, and what it decides by it."""

import asyncio
import math
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET
from rich.console import Console

from roost.analysis.outlook import STEP_S, Use
from roost.analysis.store import SeriesReader
from roost.base.errors import Conflict, NotFound
from roost.base.units import GIB
from roost.cli.show.tables import explanation
from roost.control.learning.gathering import gather
from roost.control.learning.learning import EVERY_S, LASTS_S
from roost.model.series import DAY_MS, Columns, Reading, Subject
from roost.parts.access import Principal
from roost.placement.replay import record, replay
from roost.wire.bodies import (
    BootBody,
    CreateProject,
    CreateVM,
    DemandBody,
    ImageBody,
    PlacementBody,
)
from roost.wire.flavors import CreateFlavor
from roost.wire.profiles import ProfileBody, ProfileQuery
from roost.wire.series import ImportSeries
from tests.builders import request as asked
from tests.integration.control.rig import ADMIN, Rig, digest_of, run, run_two

STEP_MS, DAY_S = 1000 * STEP_S, DAY_MS // 1000


async def used(rig: Rig, subject: Subject, *cpu_milli: float, days: float = 2) -> None:
    """Let a VM or host have used this much cpu, by the hour of the day, and 256 MiB."""
    now = rig.clock.wall_ms()
    first = now - int(days * DAY_MS)
    readings = [
        Reading(subject, at, {"cpu_milli": _at(at, cpu_milli), "memory_bytes": GIB / 4})
        for at in range(first - first % STEP_MS, now, STEP_MS)
    ]
    put = await rig.series.put(readings, now, old=True)
    assert put.left_out == 0


def _at(at_ms: int, by_hour: tuple[float, ...]) -> float:
    hour = at_ms % DAY_MS * len(by_hour) // DAY_MS
    wave = 1 + 0.02 * math.sin(at_ms / 1e6)  # so that nothing is quite constant
    return round(by_hour[hour] * wave, 2)


async def cool_but_promised(rig: Rig) -> None:
    """Two hosts: of `cool` more is promised, on `hot` more is used."""
    await rig.host("cool", cpu=8, memory=32)
    await rig.host("hot", cpu=8, memory=32)
    for host, vms, cpu in (("cool", 3, 50.0), ("hot", 1, 950.0)):
        for number in range(vms):
            made = await rig.running(f"{host}-{number}", constraints={"hosts": [host]})
            await used(rig, Subject("vm", made.id), cpu)
        await used(rig, Subject("host", host), vms * cpu)


def predicted(rig: Rig, host: str) -> tuple[int, int] | None:
    """Return the cpu and memory that a host's columns have as predicted."""
    fleet = rig.plane.roster.fleet
    cpu, memory, known = fleet.hosts.arrays.predicted[fleet.row(host)].tolist()
    return (cpu, memory) if known else None


def test_metrics_based_chooses_the_host_that_is_predicted_cool(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await cool_but_promised(rig)
        assert predicted(rig, "cool") is None
        assert (await rig.create("by-promises", strategy="metrics_based")).host == "hot"
        await rig.plane.vms.delete("by-promises", None, ADMIN)
        await rig.settle()
        await rig.plane.learning.learn()
        cool, hot = predicted(rig, "cool"), predicted(rig, "hot")
        assert cool is not None
        assert hot is not None
        assert 150 <= cool[0] < 200 < 950 <= hot[0] < 1100
        made = await rig.create("by-load", strategy="metrics_based")
        assert made.host == "cool"

    run(database_url, test, dated=True)


def test_a_vm_goes_beside_those_that_peak_at_other_hours(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        morning, night = (0, 0, 300, 300, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 300, 300)
        boots = [BootBody(image=ImageBody(f"sha256:{digit * 64}")) for digit in "ab"]
        for host, boot, course in zip(("early", "late"), boots, (morning, night), strict=True):
            await rig.host(host, cpu=32, memory=64)
            for number in range(5):
                constraints = {"hosts": [host]}
                made = await rig.running(f"{host}-{number}", constraints=constraints, boot=boot)
                await used(rig, Subject("vm", made.id), *course, days=4)
            await used(rig, Subject("host", host), *(5 * each for each in course), days=4)
        await rig.plane.learning.learn()
        for boot, where in zip(boots, ("late", "early"), strict=True):
            made = await rig.create(f"to-{where}", strategy="metrics_based", boot=boot)
            assert made.host == where
            plain = await rig.create(f"not-to-{where}", boot=boot, constraints={"hosts": [where]})
            assert plain.placement is not None
            assert "peaks shared" not in {term.name for term in plain.placement.breakdown}

    run(database_url, test, dated=True)


def test_a_decision_names_the_predictions_that_it_went_by(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await cool_but_promised(rig)
        await rig.plane.learning.learn()
        basis = rig.plane.learning.outlook.basis
        decided = record(rig.plane.roster.engine, asked("by-load", strategy="metrics_based"))
        fleet = rig.plane.roster.fleet.snapshot()
        await rig.create("by-load", strategy="metrics_based")
        assert (await rig.create("otherwise")).placement.foreseen is UNSET  # type: ignore[union-attr]
        placement = (await rig.get("by-load")).placement
        assert placement is not None
        assert placement.foreseen
        assert placement.foreseen.digest == basis.digest == decided.predicted
        assert placement.foreseen.until_s == basis.until_s
        assert placement.foreseen.host is not None
        assert placement.foreseen.host.cpu_milli_range is not None
        low, high = placement.foreseen.host.cpu_milli_range
        assert 100 < low <= high == placement.foreseen.host.cpu_milli < 200
        # Later predictions are others; the record's are those that it was decided by.
        rig.clock.move(EVERY_S)
        await rig.plane.learning.learn()
        assert rig.plane.roster.fleet.basis.digest != decided.predicted
        assert repr(replay(decided, fleet)).encode() == decided.answer_bytes()
        with pytest.raises(Conflict):
            replay(decided, rig.plane.roster.fleet)

    run(database_url, test, dated=True)


@pytest.mark.parametrize(
    ("given", "least"),
    [({"predict_quantile": 0.98}, 1.002), ({"predict_hours": 24}, 1.5)],
    ids=["seldom passed", "a day ahead"],
)
def test_predictions_are_made_as_far_and_as_sure_as_set(
    sqlite_url: str, given: dict[str, float], least: float
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=8, memory=32)
        made = await rig.running("web")
        ahead = [300.0, 100.0, 100.0, 100.0]  # by quarters of a day
        for subject in (Subject("vm", made.id), Subject("host", "h1")):
            await used(rig, subject, *ahead, days=6)
        await rig.plane.learning.learn()
        before, basis = predicted(rig, "h1"), rig.plane.learning.outlook.basis
        rig.given.update(given)
        await rig.restart()
        await rig.plane.learning.learn()
        after, other = predicted(rig, "h1"), rig.plane.learning.outlook.basis
        assert before is not None
        assert after is not None
        assert after[0] > least * before[0]
        assert other.digest != basis.digest
        assert other.quantile_milli == 1000 * given.get("predict_quantile", 0.9)
        hours = given.get("predict_hours", 4) - 4
        assert other.until_s == basis.until_s + 3600 * hours  # type: ignore[operator]

    run(sqlite_url, test, dated=True)


def test_explain_shows_what_is_predicted_of_each_host(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await cool_but_promised(rig)
        await rig.plane.learning.learn()
        await rig.running("by-load", strategy="metrics_based")
        found = await rig.plane.vms.explain("by-load", None, [], ADMIN)
        shown = {verdict.host: verdict.predicted for verdict in found.verdicts}
        assert shown["hot"] is not None
        assert shown["hot"].cpu_milli_range is not None
        assert shown["hot"].cpu_milli_range[1] == shown["hot"].cpu_milli
        assert isinstance(found.answer, PlacementBody)
        assert found.answer.foreseen
        console = Console(width=200, file=StringIO())
        console.print(explanation(found, asked("by-load"), None))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "predicted of it:" in text
        assert "one time in 10" in text

    run(sqlite_url, test, dated=True)


def test_what_was_just_placed_counts_at_once(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await cool_but_promised(rig)
        await rig.plane.learning.learn()
        before = predicted(rig, "cool")
        assert before is not None
        hosts = [
            (await rig.create(f"n{at}", cpu=0.8, strategy="metrics_based")).host for at in range(3)
        ]
        # Nothing is known of VMs of this size: each counts as all that it asked for.
        assert hosts == ["cool", "hot", "cool"]
        after = predicted(rig, "cool")
        assert after is not None
        assert after[0] == before[0] + 2 * 800

    run(sqlite_url, test, dated=True)


def test_a_new_vm_is_expected_to_use_what_those_of_its_size_do(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=8, memory=32)
        await used(rig, Subject("host", "h1"), 500.0)
        for number in range(5):
            made = await rig.running(f"web-{number}")
            await used(rig, Subject("vm", made.id), 100.0)
        await rig.plane.learning.learn()
        before = predicted(rig, "h1")
        await rig.create("web-5")
        after = predicted(rig, "h1")
        assert before is not None
        assert after is not None
        assert 100 <= after[0] - before[0] < 110  # it asked for 1000

    run(sqlite_url, test, dated=True)


def test_a_new_vm_is_expected_to_use_what_those_of_its_image_do(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=32, memory=64)
        await used(rig, Subject("host", "h1"), 500.0)
        quiet, busy = (BootBody(image=ImageBody(f"sha256:{digit * 64}")) for digit in "ab")
        for boot, cpu in ((quiet, 50.0), (busy, 700.0)):
            for number in range(5):
                made = await rig.running(f"vm-{cpu:.0f}-{number}", boot=boot)
                await used(rig, Subject("vm", made.id), cpu)
        await rig.plane.learning.learn()
        added = []
        for name, boot in (("calm", quiet), ("hot", busy)):
            before = predicted(rig, "h1")
            await rig.create(name, boot=boot)
            after = predicted(rig, "h1")
            assert before is not None
            assert after is not None
            added.append(after[0] - before[0])
        assert 50 <= added[0] < 60
        assert 700 <= added[1] < 770

    run(sqlite_url, test, dated=True)


def test_a_new_vm_is_expected_to_use_what_those_of_its_flavor_do(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=32, memory=64)
        await used(rig, Subject("host", "h1"), 500.0)
        for flavor, cpu in (("calm", 50.0), ("hot", 700.0)):
            size = DemandBody(cpu=1, memory="1GiB")
            await rig.plane.flavors.create(CreateFlavor(name=flavor, demand=size), ADMIN)
            for number in range(5):
                body = CreateVM(name=f"{flavor}-{number}", flavor=flavor)
                made = await rig.plane.admit.create(body, ADMIN, None, digest_of(body))
                await used(rig, Subject("vm", made.vm.id), cpu)
        await rig.settle()
        await rig.plane.learning.learn()
        added = []
        # In a project where nothing has run yet only the flavor tells them apart.
        await rig.plane.projects.create(CreateProject(name="young"), ADMIN)
        for flavor in ("calm", "hot"):
            before = predicted(rig, "h1")
            body = CreateVM(name=f"as-{flavor}", project="young", flavor=flavor)
            await rig.plane.admit.create(body, ADMIN, None, digest_of(body))
            after = predicted(rig, "h1")
            assert before is not None
            assert after is not None
            added.append(after[0] - before[0])
        assert 50 <= added[0] < 60
        assert 700 <= added[1] < 770

    run(database_url, test, dated=True)


def test_predictions_end_when_nothing_new_is_learnt(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await cool_but_promised(rig)
        await rig.plane.learning.learn()
        rig.clock.move(LASTS_S - STEP_S)
        rig.plane.learning.forget_old()
        assert predicted(rig, "cool") is not None
        rig.clock.move(2 * STEP_S)
        rig.plane.learning.forget_old()
        assert predicted(rig, "cool") is None
        assert rig.plane.roster.fleet.basis.digest == ""
        assert (rig.plane.roster.fleet.vms.expected[:4, 0] == -1).all()

    run(sqlite_url, test, dated=True)


def test_a_host_whose_readings_stopped_is_not_predicted(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await cool_but_promised(rig)
        rig.clock.move(1800 + STEP_S)
        await used(rig, Subject("host", "hot"), 950.0, days=0.1)
        await rig.plane.learning.learn()
        assert predicted(rig, "cool") is None
        # Its VM is not heard of any more, so it counts as all that it asked for.
        hot = predicted(rig, "hot")
        assert hot is not None
        assert hot[0] >= 1000

    run(sqlite_url, test, dated=True)


async def nothing_is_learnt_from_the_future(rig: Rig) -> None:
    await cool_but_promised(rig)
    await rig.plane.learning.learn()
    before = rig.plane.learning.outlook
    now = rig.clock.wall_ms()
    ahead = [
        Reading(Subject("host", "cool"), at, {"cpu_milli": 9000.0, "memory_bytes": 1.0})
        for at in range(now, now + 50 * 60_000, 60_000)  # a host's clock that is ahead
    ]
    await rig.series.put(ahead, now)
    await rig.plane.learning.learn()
    assert rig.plane.learning.outlook == before


def test_no_reading_of_the_future_is_used(database_url: str) -> None:
    run(database_url, nothing_is_learnt_from_the_future, dated=True)


def test_a_build_that_reads_the_future_is_found(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roost.control.learning import learning

    async def later(reader: SeriesReader, subject: Subject, origin_ms: int) -> Use:
        return await gather(reader, subject, origin_ms + 9 * STEP_MS)

    monkeypatch.setattr(learning, "gather", later)
    with pytest.raises(AssertionError):
        run(sqlite_url, nothing_is_learnt_from_the_future, dated=True)


def test_processes_that_share_a_store_learn_the_same(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await cool_but_promised(first)
        await second.plane.follower.catch_up()
        await first.plane.learning.learn()
        await second.plane.learning.learn()
        assert first.plane.learning.outlook == second.plane.learning.outlook
        assert first.plane.roster.fleet.basis.digest.startswith("sha256:")
        assert predicted(first, "hot") == predicted(second, "hot")
        made = await first.create("by-load", strategy="metrics_based")
        await second.plane.follower.catch_up()
        assert made.host == "cool"
        assert predicted(first, "cool") == predicted(second, "cool")

    run_two(postgres_url, test, dated=True)


def test_a_store_that_breaks_is_said_and_nothing_stalls(sqlite_url: str) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    store = path.with_name(f"{path.stem}-series.db")

    async def test(rig: Rig) -> None:
        await cool_but_promised(rig)
        await rig.plane.learning.learn()
        for side in store.parent.glob(f"{store.name}*"):
            side.unlink()
        store.write_bytes(b"this is no database" * 500)
        rig.clock.move(EVERY_S + 60)
        await rig.plane.learning.look()
        told = [each.message for each in (await rig.plane.doctor()).troubles]
        assert [each for each in told if "nothing is learnt" in each and "for an hour" in each]
        assert (await rig.create("meanwhile", strategy="metrics_based")).host == "cool"
        rig.clock.move(LASTS_S)
        await rig.plane.learning.expire()
        await rig.plane.learning.look()
        told = [each.message for each in (await rig.plane.doctor()).troubles]
        assert [each for each in told if "no host is predicted" in each]
        assert (await rig.create("later", strategy="metrics_based")).host == "hot"

    run(sqlite_url, test, dated=True)


def test_a_store_that_hangs_keeps_nobody_waiting(sqlite_url: str) -> None:
    class Hanging:
        async def read(self, *asked: object, **more: object) -> Columns:
            await asyncio.Event().wait()
            raise AssertionError

    async def test(rig: Rig) -> None:
        await cool_but_promised(rig)
        learning = rig.plane.learning
        await learning.learn()
        learning._reader = Hanging()
        rig.clock.move(EVERY_S)
        looking = asyncio.create_task(learning.look())
        await asyncio.sleep(0)
        assert (await rig.create("meanwhile", strategy="metrics_based")).host == "cool"
        rig.clock.move(LASTS_S + 1)
        await learning.expire()
        assert predicted(rig, "cool") is None
        told = [each.message for each in (await rig.plane.doctor()).troubles]
        assert [each for each in told if "too slow or hangs" in each]
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)

    run(sqlite_url, test, dated=True)


def test_what_its_owner_said_of_a_vm_s_end_is_expected(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=8)
        await rig.create("short", until="2026-11-18T12:00:00Z")
        fleet = rig.plane.roster.fleet
        ends_s = 1_795_003_200
        assert fleet.vms.expected[:1, 2].tolist() == [ends_s]
        await rig.settle()
        await rig.restart()
        assert rig.plane.roster.fleet.vms.expected[:1, 2].tolist() == [ends_s]

    run(sqlite_url, test, dated=True)


DAILY = (100.0,) * 8 + (800.0,) * 10 + (100.0,) * 6


def test_a_vm_s_profile_tells_its_rhythm_and_the_next_day(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        web = await rig.running("web", memory=2 * GIB)
        await used(rig, Subject("vm", web.id), *DAILY, days=7)
        found = await rig.plane.learning.profile("web", ProfileQuery(hours=24), ADMIN)
        assert (found.vm, found.name, found.step_s) == (web.id, "web", STEP_S)
        cpu, memory = found.resources["cpu"], found.resources["memory"]
        day = [each for each in cpu.patterns if each.kind == "cyclic"]
        assert [round(each.cycle_s / 3600) for each in day] == [24]
        assert day[0].confidence > 0.7
        # It is noon: the VM works until six, and again from eight in the morning.
        point, low, high = cpu.forecast.point, cpu.forecast.low, cpu.forecast.high
        assert len(point) == len(low) == len(high) == 288
        models = cpu.forecast.models
        assert [each.until_s // 3600 for each in models] == [1, 6, 24]
        assert all(each.error is not None and each.error < 80 for each in models)
        assert cpu.forecast.model.startswith(models[0].family)
        assert round(cpu.forecast.cycles_s[0] / 3600) == 24
        assert point[12] == pytest.approx(800, rel=0.1)
        assert point[120] == pytest.approx(100, rel=0.2)
        assert all(
            a <= b for a, b in zip(low, high, strict=True) if a is not None and b is not None
        )
        assert None not in high
        assert cpu.sizing.asked == 1000
        assert cpu.sizing.advised == pytest.approx(1.2 * 800, rel=0.1)
        assert memory.sizing.saving == pytest.approx(1.7 * GIB, rel=0.02)
        assert found.workload_class == "diurnal_service"
        assert not found.zombie.zombie

    run(database_url, test, dated=True)


def test_a_new_vm_s_day_is_told_by_vms_like_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=16, memory=64)
        await used(rig, Subject("host", "h1"), 500.0)
        for number in range(5):
            made = await rig.running(f"web-{number}")
            await used(rig, Subject("vm", made.id), *DAILY, days=4)
        await rig.plane.learning.learn()
        new = Subject("vm", (await rig.running("new")).id)
        await used(rig, new, 1000.0, days=1 / 24)  # VMs like it use 800 at noon
        found = await rig.plane.learning.profile("new", ProfileQuery(hours=24), ADMIN)
        ahead = found.resources["cpu"].forecast
        assert ahead.model == "cold_start peers=5"
        assert None not in ahead.low
        assert None not in ahead.high
        assert 800 < ahead.point[12] < 1000  # type: ignore[operator]
        assert 100 < ahead.point[120] < 125  # type: ignore[operator]
        # What is foreseen of others is not told to who sees but an other project.
        await rig.plane.projects.create(CreateProject(name="lab"), ADMIN)
        alone = Subject("vm", (await rig.running("alone", project="lab")).id)
        await used(rig, alone, 1000.0, days=1 / 24)
        asked = ProfileQuery(hours=24, project="lab")
        member = Principal("m", "member", project="lab")
        told = (await rig.plane.learning.profile("alone", asked, member)).resources["cpu"]
        assert set(told.forecast.high) == {None}
        told = (await rig.plane.learning.profile("alone", asked, ADMIN)).resources["cpu"]
        assert told.forecast.model == "cold_start peers=5"

    run(database_url, test, dated=True)


def test_a_profile_counts_what_was_dropped_and_repaired(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        web = Subject("vm", (await rig.running("web")).id)
        now = rig.clock.wall_ms()
        begin = now - 2 * 3_600_000

        def reading(minute: int, sent: float, **more: float) -> Reading:
            figures = {"cpu_milli": 500.0, "memory_bytes": 1.0, "net_sent_bytes": sent}
            return Reading(web, begin + 60_000 * minute, figures | more)

        good = [reading(minute, minute) for minute in range(60)]
        anew = [reading(minute, minute - 90) for minute in range(90, 120)]  # another process
        await rig.series.put(good, now)
        await rig.series.put([reading(5, 5), reading(59, 59), reading(0, 0, disk_bytes=-1)], now)
        nan = {"disk_write_bytes": math.nan, "disk_reads": -5.0}
        await rig.series.put([reading(90, 0, **nan), *anew[1:], reading(3 * 1440, 9)], now)
        await rig.series.put([reading(119, 29)], now)
        found = await rig.plane.learning.profile("web", ProfileQuery(hours=1), ADMIN)
        cleaning = found.cleaning
        assert cleaning is not None
        assert (cleaning.samples, cleaning.resets, cleaning.not_finite) == (90, 1, 1)
        assert (cleaning.negative, cleaning.jumps) == (2, 1)
        assert (cleaning.duplicates, cleaning.out_of_order) == (1, 2)
        assert found.resources["cpu"].gaps == 6  # half an hour
        await rig.series.file_all(now)
        again = await rig.plane.learning.profile("web", ProfileQuery(hours=1), ADMIN)
        assert again == found

    run(database_url, test, dated=True)


def test_a_profile_tells_of_weeks_that_are_alike(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        web = Subject("vm", (await rig.running("web")).id)
        now = rig.clock.wall_ms()
        quiet, busy = {"cpu_milli": 100.0}, {"cpu_milli": 700.0}
        moments = range(now - 28 * DAY_MS, now, 6 * STEP_MS)
        readings = [
            Reading(web, at, quiet if at // DAY_MS % 7 in (2, 3) else busy) for at in moments
        ]
        await rig.series.put(readings, now, old=True)
        found = await rig.plane.learning.profile("web", ProfileQuery(hours=1), ADMIN)
        cycles = [each.cycle_s / DAY_S for each in found.resources["cpu"].patterns if each.cycle_s]
        assert 7.0 in [round(each) for each in cycles]

    run(database_url, test, dated=True)


def test_little_known_is_little_said(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        new = await rig.running("new")
        query = ProfileQuery(hours=2)
        found = await rig.plane.learning.profile("new", query, ADMIN)
        for each in found.resources.values():
            assert (each.points, each.patterns, each.stability) == (0, [], 0.0)
            assert set(each.forecast.point) == {None}
            assert each.sizing.advised is None
        assert found.workload_class is None
        await used(rig, Subject("vm", new.id), 300.0, days=3 / 24)
        found = await rig.plane.learning.profile("new", query, ADMIN)
        cpu = found.resources["cpu"]
        assert cpu.forecast.point[0] == pytest.approx(300, rel=0.1)
        assert cpu.forecast.high[-1] is None  # three hours say nothing sure of the next two
        assert cpu.forecast.low[-1] is None
        assert cpu.sizing.advised is None
        await used(rig, Subject("vm", new.id), 300.0, days=1)
        found = await rig.plane.learning.profile("new", ProfileQuery(hours=24), ADMIN)
        cpu = found.resources["cpu"]
        assert set(cpu.forecast.high) == set(cpu.forecast.low) == {None}  # nor one day of the next
        assert b"NaN" not in (told := msgspec.json.encode(found))
        assert msgspec.json.decode(told, type=ProfileBody) == found

    run(sqlite_url, test, dated=True)


def test_a_member_sees_profiles_of_its_project_alone(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.running("web")
        elsewhere = Principal("m", "member", project="elsewhere")
        with pytest.raises(NotFound):
            await rig.plane.learning.profile("web", ProfileQuery(), elsewhere)
        mine = Principal("m", "member", project="default")
        assert (await rig.plane.learning.profile("web", ProfileQuery(), mine)).name == "web"

    run(sqlite_url, test, dated=True)


def test_what_was_imported_is_learnt_from_at_the_next_look(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.plane.learning.look()  # it is not time yet
        now = rig.clock.wall_ms()
        moments = list(range(now - DAY_MS, now, STEP_MS))
        figures: dict[str, list[float | None]] = {
            "cpu_milli": [500.0] * len(moments),
            "memory_bytes": [float(GIB)] * len(moments),
        }
        body = ImportSeries(kind="host", name="h1", at_ms=moments, figures=figures)
        assert rig.plane.learning.outlook.hosts == {}
        await rig.plane.series.bring(body, ADMIN)
        assert rig.plane.learning._next <= rig.clock.monotonic()

    run(sqlite_url, test, dated=True)
