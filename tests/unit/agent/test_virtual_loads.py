"""Loads of virtual VMs: bounds, the same bytes again, what patterns look like, files of traces."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from roost.agent.drivers import virtualsampling
from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.virtual import VirtualDriver, VirtualSettings
from roost.agent.drivers.virtualloads import PATTERNS, STEADY, Load, level, read_load
from roost.agent.drivers.virtualsampling import HostAmounts, VirtualSampler
from roost.agent.drivers.virtualtraces import Trace, read_traces
from roost.base.errors import InvalidRequest
from roost.base.units import GIB
from roost.model.series import COUNTERS, DAY_MS, FIGURES, HOUR_MS
from roost.testing.clock import HandClock
from roost.testing.orders import vm as order
from roost.wire.agentlink import SampleInfo, Samples, decode_from_agent, encode

MONDAY_MS = 20_773 * DAY_MS  # 16 November 2026
TRACES = {"": Trace((0, 60_000, 120_000), (0.1, 0.9, 0.5))}
ROOMY = HostAmounts(1_000_000, 1000 * GIB)

shares = st.floats(0, 1).map(lambda share: round(share, 3))
loads = st.builds(
    Load,
    pattern=st.sampled_from(PATTERNS),
    mean=shares,
    amplitude=shares,
    peak=st.floats(0, 168),
    weekend=shares,
    days=st.floats(0.01, 3660),
    bursts=shares,
    noise=shares,
    memory=shares,
)
moments = st.integers(0, 4_000_000_000_000)
local_vms = st.builds(
    LocalVM,
    id=st.text(min_size=1, max_size=8),
    name=st.just("vm"),
    state=st.sampled_from(["running", "running", "paused", "stopped", "starting", "moved"]),
    cpu_milli=st.integers(0, 256_000),
    memory_bytes=st.integers(0, 2**42),
    disk_bytes=st.integers(0, 2**44),
    load=st.sampled_from(["", *PATTERNS, "nonsense"]),
)
fleets = st.lists(local_vms, max_size=6, unique_by=lambda each: each.id)
hosts = st.builds(
    HostAmounts, st.none() | st.integers(1, 64_000), st.none() | st.integers(1, 2**40)
)


def nobody_uses_more_than_it_asked_for(
    vms: list[LocalVM], host: HostAmounts, load: Load, at_ms: int
) -> None:
    sampler = VirtualSampler(load, TRACES, host)
    for moment in (at_ms, at_ms + 15_000):
        *readings, whole = sampler.read(vms, moment)
        known = {each.id: each for each in vms if each.state == "running"}
        assert {each.vm for each in readings} == known.keys()
        for reading in readings:
            vm = known[reading.vm]
            assert 0 <= reading.cpu_milli <= vm.cpu_milli
            assert 0 <= reading.memory_bytes <= vm.memory_bytes
            assert 0 <= reading.disk_bytes <= vm.disk_bytes
            assert 0 <= reading.more["dirty_bytes_per_s"] <= reading.memory_bytes
        assert whole.vm == ""
        assert whole.cpu_milli == sum(each.cpu_milli for each in readings)
        if host.cpu_milli is not None:
            assert whole.cpu_milli <= host.cpu_milli
        if host.memory_bytes is not None:
            assert whole.memory_bytes <= host.memory_bytes
        psi = [whole.more[name] for name in whole.more if name.startswith("psi_")]
        assert all(0 <= each <= 100 for each in psi)
        assert {name for each in (*readings, whole) for name in each.more} <= FIGURES


@given(fleets, hosts, loads, moments)
def test_no_vm_uses_more_than_it_asked_for_and_one_that_is_stopped_nothing(
    vms: list[LocalVM], host: HostAmounts, load: Load, at_ms: int
) -> None:
    nobody_uses_more_than_it_asked_for(vms, host, load, at_ms)


def test_a_load_without_bounds_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtualsampling, "level", lambda *_: 1.2)
    vm = LocalVM(id="a", name="a", state="running", cpu_milli=1000, memory_bytes=GIB)
    with pytest.raises(AssertionError):
        nobody_uses_more_than_it_asked_for([vm], ROOMY, STEADY, 0)


def read_at(moments_ms: list[int], vms: list[LocalVM], load: Load) -> bytes:
    sampler = VirtualSampler(load, TRACES, ROOMY)
    return b"".join(encode(Samples(sampler.read(vms, at_ms))) for at_ms in moments_ms)


@given(fleets, loads, st.lists(moments, min_size=1, max_size=4))
def test_the_same_vms_at_the_same_moments_give_the_same_bytes(
    vms: list[LocalVM], load: Load, at_ms: list[int]
) -> None:
    assert read_at(at_ms, vms, load) == read_at(at_ms, vms, load)


@given(loads, moments, st.text(min_size=1, max_size=8))
def test_a_vm_is_as_busy_wherever_it_is_and_whoever_is_beside_it(
    load: Load, at_ms: int, vm_id: str
) -> None:
    vm = LocalVM(id=vm_id, name="a", state="running", cpu_milli=4000, memory_bytes=GIB)
    other = replace(vm, id=vm_id + "x")
    here = VirtualSampler(load, TRACES, ROOMY).read([vm], at_ms)[0]
    there = VirtualSampler(load, TRACES, ROOMY)
    there.read([other], max(0, at_ms - 60_000))
    assert there.read([other, vm], at_ms)[1] == here


@given(fleets, loads, moments, st.lists(st.integers(-20_000, 700_000), max_size=6))
def test_counters_never_fall_while_a_process_lives(
    vms: list[LocalVM], load: Load, at_ms: int, steps: list[int]
) -> None:
    sampler = VirtualSampler(load, TRACES, ROOMY)
    before: dict[str, SampleInfo] = {}
    for step in (0, *steps):
        at_ms = max(0, at_ms + step)
        for reading in sampler.read(vms, at_ms)[:-1]:
            assert reading.more.keys() >= {"disk_write_bytes", "net_sent_bytes"}
            if (last := before.get(reading.vm)) is not None:
                for name in COUNTERS & reading.more.keys():
                    assert reading.more[name] >= last.more[name]
            before[reading.vm] = reading


def test_vms_of_a_crowded_host_wait_by_how_busy_they_are() -> None:
    vms = [
        LocalVM(id=name, name=name, state="running", cpu_milli=4000, memory_bytes=GIB, load=load)
        for name, load in (("a", "steady:mean=1,noise=0"), ("b", "steady:mean=0.5,noise=0"))
    ]
    crowded = VirtualSampler(STEADY, {}, HostAmounts(4000, 64 * GIB)).read(vms, 0)
    busy, half, host = (each.more["psi_cpu_some_avg60"] for each in crowded)
    assert busy == host > 20
    assert half == pytest.approx(host / 2, abs=0.01)
    roomy = VirtualSampler(STEADY, {}, ROOMY).read(vms, 0)
    assert {each.more["psi_cpu_some_avg60"] for each in roomy} == {0}


def test_counters_begin_anew_with_a_new_process() -> None:
    vm = LocalVM(id="a", name="a", state="running", cpu_milli=4000, memory_bytes=GIB, restarts=0)
    sampler = VirtualSampler(STEADY, {}, ROOMY)
    written = []
    for at_s, here in enumerate([vm, vm, replace(vm, state="paused"), vm, replace(vm, restarts=1)]):
        reading = sampler.read([here], 15_000 * at_s)[0]
        written.append(reading.more.get("disk_write_bytes"))
    assert written[0] == written[4] == 0
    assert written[2] is None
    assert 0 < written[1] < written[3]  # type: ignore[operator]


@given(fleets, hosts, moments)
@settings(max_examples=25)
def test_what_is_sent_is_what_the_control_plane_takes(
    vms: list[LocalVM], host: HostAmounts, at_ms: int
) -> None:
    vms = [replace(each, id=f"vm-{number}") for number, each in enumerate(vms)]
    sent = Samples(VirtualSampler(STEADY, TRACES, host).read(vms, at_ms))
    assert decode_from_agent(encode(sent)) == sent


# What patterns look like


def hourly(text: str, days: int = 7, vm_id: str = "vm-1") -> list[float]:
    load = read_load(text, TRACES)
    return [level(load, vm_id, MONDAY_MS + hour * HOUR_MS, TRACES) for hour in range(24 * days)]


def test_a_daily_load_is_highest_at_its_peak_and_lowest_half_a_day_later() -> None:
    day = hourly("daily:mean=0.5,amplitude=0.4,peak=9,noise=0", 1)
    assert day[9] == pytest.approx(0.9) == max(day)
    assert day[21] == pytest.approx(0.1) == min(day)


def test_a_weekend_is_what_is_left_of_a_day() -> None:
    week = hourly("daily:weekend=0.25,noise=0")
    assert week[5 * 24 + 14] == pytest.approx(0.25 * week[14])
    assert week[4 * 24 + 14] == pytest.approx(week[14])


def test_a_weekly_load_is_highest_once_a_week() -> None:
    week = hourly("weekly:peak=30,noise=0")
    assert week.index(max(week)) == 30


def test_a_growing_load_grows_until_it_begins_anew() -> None:
    grown = hourly("growing:days=3,noise=0", 9)
    falls = [at for at in range(1, len(grown)) if grown[at] < grown[at - 1]]
    assert len(falls) == 3
    assert falls[1] - falls[0] == falls[2] - falls[1] == 72


def test_a_bursty_load_bursts_as_often_as_it_says() -> None:
    load = read_load("bursty:bursts=0.2,noise=0", {})
    slots = [level(load, "vm-1", MONDAY_MS + 300_000 * slot, {}) for slot in range(4000)]
    assert 0.17 < sum(each > 0.2 for each in slots) / len(slots) < 0.23


def test_an_idle_vm_does_next_to_nothing() -> None:
    assert max(hourly("idle")) < 0.02


def test_a_trace_plays_over_and_over() -> None:
    load = read_load("trace", TRACES)
    played = [level(load, "vm-1", 60_000 * minute, TRACES) for minute in range(7)]
    assert played == [0.1, 0.9, 0.5, 0.1, 0.9, 0.5, 0.1]


# Words and files


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("frantic", "no load 'frantic': there are steady"),
        ("daily:mean", "no KEY=VALUE"),
        ("daily:pattern=idle", "no KEY=VALUE"),
        ("daily:mean=1.5", "not a number from 0 to 1"),
        ("daily:mean=nan", "not a number from 0 to 1"),
        ("growing:days=0", "must be above 0"),
        ("trace:name=web", "no trace 'web'"),
        ("daily:" + 300 * "x", "longer than 253"),
    ],
)  # fmt: skip
def test_a_load_that_means_nothing_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        read_load(text, TRACES)


def test_a_file_has_several_traces_by_name(tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    path.write_text("name,time,cpu\nweb,0,0.5\nbatch,0,1\nweb,300,0.25\n")
    assert read_traces(path) == {
        "web": Trace((0, 300_000), (0.5, 0.25)),
        "batch": Trace((0,), (1.0,)),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has the columns"),
        ("time,cpu\n", "has no rows"),
        ("time,load\n0,1\n", "has the columns"),
        ("time,cpu\n0,1.01\n", "row 1 of .*cpu '1.01'"),
        ("time,cpu\n0,nan\n", "cpu 'nan'"),
        ("time,cpu\n-1,0\n", "time '-1'"),
        ("time,cpu\n0,0\n0,1\n", "row 2 of .* not after"),
        ("time,cpu\n0\n", "1 cells"),
        ("time,cpu\n0,\0\n", "cpu|cannot be read"),
    ],
)
def test_a_broken_file_is_refused_with_its_row(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "load.csv"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=why):
        read_traces(path)


@given(st.binary(max_size=200))
@settings(max_examples=50)
def test_any_bytes_are_a_trace_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("traces") / "load.csv"
    path.write_bytes(b"time,cpu\n" + data)
    try:
        traces = read_traces(path)
    except InvalidRequest:
        return
    assert all(0 <= trace.at(at_ms) <= 1 for trace in traces.values() for at_ms in (0, 10**12))


# The driver


def test_a_label_says_the_load_and_a_wrong_one_falls_back_to_the_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def readings(labels: dict[str, str]) -> SampleInfo:
        clock = HandClock(MONDAY_MS / 1000)
        given = VirtualSettings(boot_s=0.0, load=read_load("steady:mean=0.5,noise=0", {}))
        driver = VirtualDriver(given, clock=clock)
        starting = asyncio.create_task(driver.start(order("vm-1", labels=labels)))
        await clock.settle()
        await starting
        await driver.samples()
        return (await driver.samples())[0]

    asked = asyncio.run(readings({})).cpu_milli * 2
    assert asyncio.run(readings({"load": "steady:mean=0.1,noise=0"})).cpu_milli == asked // 10
    assert not caplog.records
    assert asyncio.run(readings({"load": "frantic"})).cpu_milli == asked // 2
    assert sum("frantic" in each.message for each in caplog.records) == 1
