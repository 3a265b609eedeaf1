"""All or nothing: greedy first, then the exact search, and the answer says which."""

from itertools import count
from random import Random
from threading import Timer
from time import perf_counter

from roost.base.units import GIB
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Cell, Device, Scope
from roost.model.resources import DeviceDemand, NumaMode
from roost.placement.effort import Effort
from roost.placement.engine import Engine
from roost.placement.group import EXACT, GREEDY, place_group
from tests.builders import engine_on, host, request


def hosts_of(answer) -> dict[str, str]:
    return {placement.vm: placement.host for placement in answer.placements}


def test_a_group_that_fits_greedily_says_so() -> None:
    answer = place_group(engine_on(host("a")), [request("x"), request("y")])
    assert (answer.how, answer.fits) == (GREEDY, True)


def test_the_exact_search_finds_what_greedy_misses() -> None:
    engine = engine_on(host("a", 4000), host("b", 3000), strategy="first_fit")
    requests = [request("small", 3000), request("large", 4000)]
    answer = place_group(engine, requests)
    assert (answer.how, hosts_of(answer)) == (EXACT, {"small": "b", "large": "a"})


def test_a_group_that_cannot_fit_is_refused_whole_with_the_reason() -> None:
    engine = engine_on(host("a", 4000))
    answer = place_group(engine, [request("x", 3000), request("y", 3000)])
    assert not answer.fits
    assert answer.placements == ()
    assert answer.rejection is not None
    assert answer.rejection.vm == "y"
    assert answer.proven


def test_nothing_changes_before_the_commit() -> None:
    engine = engine_on(host("a", 4000), host("b", 3000))
    before = engine.fleet.to_description()
    place_group(engine, [request("small", 3000), request("large", 4000)])
    assert engine.fleet.to_description() == before


def test_committing_the_answer_keeps_every_invariant() -> None:
    from roost.fleet.check import check

    engine = engine_on(host("a", 4000), host("b", 3000), strategy="first_fit")
    requests = [request("small", 3000), request("large", 4000)]
    for each, placement in zip(requests, place_group(engine, requests).placements, strict=True):
        engine.commit(each, placement)
    check(engine.fleet)


def test_anti_affinity_is_part_of_the_search() -> None:
    apart = GroupSpec("apart", GroupRule.ANTI_AFFINITY, Scope.HOST)
    engine = engine_on(host("a", 4000), host("b", 2000), host("c", 2000), strategy="first_fit")
    requests = [
        request("x", 2000, groups=(apart,)),
        request("y", 2000, groups=(apart,)),
        request("big", 4000),
    ]
    answer = place_group(engine, requests)
    assert hosts_of(answer)["big"] == "a"
    assert {hosts_of(answer)["x"], hosts_of(answer)["y"]} == {"b", "c"}


def test_affinity_takes_the_whole_group_to_one_zone() -> None:
    together = GroupSpec("together", GroupRule.AFFINITY, Scope.ZONE)
    engine = engine_on(
        host("a1", 2000, zone="a"),
        host("b1", 2000, zone="b"),
        host("b2", 2000, zone="b"),
        strategy="first_fit",
    )
    requests = [request(name, 2000, groups=(together,)) for name in ("x", "y")]
    answer = place_group(engine, requests)
    assert (answer.how, set(hosts_of(answer).values())) == (EXACT, {"b1", "b2"})


def test_spread_counts_old_and_new_members() -> None:
    even = GroupSpec("even", GroupRule.SPREAD, Scope.ZONE)
    engine = engine_on(host("a1", 3000, zone="a"), host("b1", 2000, zone="b"), strategy="first_fit")
    requests = [request(f"vm{n}", 1000, groups=(even,)) for n in range(4)]
    requests.append(request("filler", 1000))
    answer = place_group(engine, requests)
    assert answer.fits
    placed = [hosts_of(answer)[f"vm{n}"] for n in range(4)]
    assert abs(placed.count("a1") - placed.count("b1")) <= 1


def test_devices_and_cells_are_seats_of_their_own() -> None:
    engine = engine_on(
        host(
            "gpu",
            devices=(Device("A100"), Device("A100")),
            cells=(Cell(8000, 8 * GIB), Cell(8000, 8 * GIB)),
        ),
        host("plain", 9000),
        strategy="first_fit",
    )
    requests = [
        request("roams", 8000, 8 * GIB),
        request("g1", 4000, devices=DeviceDemand(1)),
        request("g2", 4000, devices=DeviceDemand(1)),
        request("n1", 8000, 8 * GIB, numa=NumaMode.ONE_CELL),
    ]
    answer = place_group(engine, requests)
    assert answer.fits
    assert hosts_of(answer)["roams"] == "plain"
    assert {p.devices for p in answer.placements if p.vm.startswith("g")} == {(0,), (1,)}


def hard_to_pack(*, nowhere: bool) -> tuple[Engine, list[PlaceRequest]]:
    """Return VMs that fill all hosts nearly; one may ask for a zone that there is not."""
    rng = Random(3)
    engine = engine_on(*(host(f"h{n}", 100_000, 100 * GIB, zone="a") for n in range(30)))
    asked = []
    for number in range(90):
        cpu, memory = rng.randint(26_000, 39_500), rng.randint(26, 39) * GIB
        zones = ("b",) if nowhere and number == 0 else ()
        asked.append(request(f"v{number}", cpu, memory, zones=zones))
    return engine, asked


def test_one_limit_is_for_the_whole_question_and_a_conflict_not_checked_is_named() -> None:
    engine, asked = hard_to_pack(nowhere=True)
    effort = Effort(0.2)
    answer = place_group(engine, asked, effort=effort)
    assert answer.proven
    assert effort.left > -0.2
    assert answer.conflict is not None
    assert [each.name for each in answer.conflict.restrictions] == ["zone b"]
    assert not answer.conflict.checked
    assert answer.rejection is not None
    assert "not checked" in answer.rejection.message


def test_the_clock_ends_what_the_solver_does_not_count() -> None:
    engine, asked = hard_to_pack(nowhere=False)
    seconds = count()
    answer = place_group(engine, asked, effort=Effort(3.0, lambda: float(next(seconds))))
    assert not answer.fits
    assert not answer.proven
    assert next(seconds) < 30


def test_a_search_is_stopped_from_outside() -> None:
    engine, asked = hard_to_pack(nowhere=False)
    effort = Effort(600.0)
    stop = Timer(1.0, effort.stop)
    begun = perf_counter()
    stop.start()
    answer = place_group(engine, asked, effort=effort)
    assert not answer.fits
    assert not answer.proven
    assert perf_counter() - begun < 60
