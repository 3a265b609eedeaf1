"""What is asked is counted, forgotten with time, and makes the mix."""

from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.hosts import Device, HostSpec, Resource
from roost.model.resources import Demand, DeviceDemand
from roost.placement.asked import MOST_ASKED, MOST_COUNTED, ONE, Asked
from roost.placement.engine import Engine
from roost.placement.mix import TypicalRequest

SMALL, LARGE = Demand(1000, GIB), Demand(16_000, 64 * GIB)


def sizes(asked: Asked) -> list[int]:
    """Return the cores of the kinds in the mix."""
    return [kind.cpu_milli // 1000 for kind in asked.mix().kinds]


def test_what_is_asked_is_typical_from_the_first_request_on() -> None:
    asked = Asked()
    asked.note(SMALL)
    assert sizes(asked) == [1]
    asked.note(LARGE)
    assert sizes(asked) == [1, 16]


def test_a_kind_that_is_rarely_asked_for_is_protected_too() -> None:
    asked = Asked()
    asked.note_all([SMALL] * 5000 + [LARGE])
    assert sizes(asked) == [1, 16]


def test_of_many_kinds_the_most_frequent_are_typical_and_do_not_change_to_and_fro() -> None:
    asked = Asked()
    often = [Demand(number, GIB) for number in range(1, 129)]
    asked.note_all(2 * often)
    before = asked.mix()
    rival = Demand(1000, GIB)
    asked.note_all([rival] * 3 + [SMALL] * 300)
    assert len(asked.mix().kinds) == 128
    assert len(set(asked.mix().kinds) & set(before.kinds)) >= 126


def test_what_was_asked_long_ago_is_forgotten() -> None:
    asked = Asked()
    asked.note_all([LARGE] * 100)
    asked.note_all([SMALL] * 8 * MOST_COUNTED)
    assert sizes(asked) == [1]


def test_a_mix_stays_the_same_object_while_its_kinds_do() -> None:
    asked = Asked()
    asked.note_all([SMALL, LARGE] * 10)
    before = asked.mix()
    asked.note_all([SMALL, LARGE] * 1000)
    assert asked.mix() is before


def test_no_number_of_different_sizes_fills_the_memory() -> None:
    asked = Asked()
    asked.note_all(Demand(number, GIB) for number in range(1, 3 * MOST_ASKED))
    assert len(asked) <= MOST_ASKED
    assert len(asked.mix().kinds) <= 128


def test_counts_that_could_not_be_kept_are_kept_the_next_time() -> None:
    asked = Asked()
    asked.note(SMALL)
    asked.give_back(asked.taken())
    [(kind, count)] = asked.taken().items()
    assert (kind.cpu_milli, count) == (1000, ONE)
    assert asked.taken() == {}


def test_an_engine_on_an_empty_fleet_learns_to_keep_gpus_together() -> None:
    fleet = Fleet()
    for name in ("a", "b"):
        gpus = (Device("t4"),) * 4
        room = Resource(64_000), Resource(256 * GIB), Resource(0)
        fleet.register(HostSpec(name, *room, devices=gpus))
    engine = Engine(fleet, "fragmentation")
    engine.asked = Asked()
    whole, quarter = DeviceDemand(4), DeviceDemand(1, 250)
    hosts = []
    for number, devices in enumerate([quarter, whole, quarter, quarter]):
        request = PlaceRequest(f"vm{number}", Demand(1000, GIB, devices=devices))
        engine.asked.note(request.demand)
        placement = engine.find(request)
        assert placement is not None
        assert placement.mix == engine.asked.mix().digest
        engine.commit(request, placement)
        hosts.append(placement.host)
    assert hosts == ["a", "b", "a", "a"]


def test_a_decision_names_no_mix_unless_it_went_by_one() -> None:
    fleet = Fleet()
    fleet.register(HostSpec("a", Resource(4000), Resource(GIB), Resource(0)))
    engine = Engine(fleet)
    placement = engine.find(PlaceRequest("vm", Demand(1000, GIB)))
    assert placement is not None
    assert placement.mix == ""


def test_what_cannot_be_kept_for_long_stays_bounded() -> None:
    asked = Asked()
    for number in range(3 * MOST_ASKED):
        asked.note(Demand(1 + number, GIB))
    new = asked.taken()
    assert 0 < len(new) <= MOST_ASKED
    more = {TypicalRequest(10**6 + number, GIB): ONE for number in range(3 * MOST_ASKED)}
    asked.give_back({**new, **more})
    assert 0 < len(asked.taken()) <= MOST_ASKED
