"""Who talks is learnt from what agents count: believed of their own VMs, kept, faded, gone by."""

import pytest
from sqlalchemy import select

from roost.control.topology.flows import FADE_S, LEARN_S, MOST_GATHERED, MOST_MBIT
from roost.ledger.schema.tables import events, traffic
from roost.model.vm import mac_of
from roost.wire.agentlink import FlowInfo, Samples, encode
from roost.wire.bodies import DryRun, NicBody, SetVM
from roost.wire.topology import PairBody
from tests.integration.control.rig import OPERATOR, Rig, body_of, run, run_two
from tests.integration.control.test_talkers import on, racks, talk

WRITTEN = select(events.c.seq).where(events.c.kind == "traffic.set")
MINUTE_MBIT = 60 * 10**6 // 8  # bytes of a minute at 1 Mbit/s


async def tell(rig: Rig, host: str, *flows: FlowInfo) -> None:
    """Let the agent of a host say what its VMs have sent."""
    agent = rig.agents[host]
    agent.outbox.append(encode(Samples([], list(flows))))
    agent.speak()
    await rig.hear()


async def learn(rig: Rig) -> None:
    await rig.plane.flows.learn()
    await rig.hear()


async def pairs(rig: Rig) -> list[PairBody]:
    return (await rig.plane.topology.traffic()).pairs


def test_who_talks_is_learnt_and_gone_by_and_declared_pairs_win(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        web, db = await rig.running("web", constraints=on("a")), await rig.running("db")
        sent = FlowInfo(web.id, mac_of(db.id, 0).upper(), 6000 * MINUTE_MBIT)
        await tell(rig, "a", sent)
        assert await pairs(rig) == []  # it is learnt once an hour
        await learn(rig)
        (found,) = await pairs(rig)
        assert (found.source, found.dest) in (
            ("default/web", "default/db"), ("default/db", "default/web"),
        )  # fmt: skip
        assert (found.said, found.known, found.counts) == ("learnt", True, True)
        assert found.rate == pytest.approx(6000 * 60 * 0.693147 / 172_800, rel=1e-4)
        talks = rig.plane.roster.talkers.of(web.id, "default/web", (), ())
        assert [(each.name, each.kbit) for each in talks] == [(db.id, round(1000 * found.rate))]
        shown = await rig.plane.topology.get()
        assert (shown.traffic, shown.learnt_pairs) == ([], 1)  # what is shown may be applied again
        await rig.plane.topology.set_traffic(talk("default/web", "default/db", 0.5), OPERATOR)
        assert [(each.said, each.counts) for each in await pairs(rig)] == [
            ("learnt", False), ("declared", True),
        ]  # fmt: skip
        talks = rig.plane.roster.talkers.of(web.id, "default/web", (), ())
        assert [(each.name, each.kbit) for each in talks] == [(db.id, 500)]
        await rig.check()

    run(database_url, test)


def test_a_vm_is_placed_near_the_one_it_was_seen_talking_with(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        db, web = await rig.running("db", constraints=on("d")), await rig.running("web")
        assert web.host == "a"
        await tell(rig, "a", FlowInfo(web.id, mac_of(db.id, 0), 2 * 10**15))
        await learn(rig)
        await rig.plane.topology.tell()
        assert rig.plane.topology.wiring.loads is not None
        told = await rig.plane.plans.recommend()
        assert "talkers" in [each.goal for each in told.recommendations]
        await rig.move("web", "b")
        assert (await pairs(rig))[0].rate > 0
        await rig.restart()  # it is kept, and known to the next process
        talks = rig.plane.roster.talkers.of(web.id, "default/web", (), ())
        assert [each.name for each in talks] == [db.id]

    run(database_url, test)


def test_an_agent_is_believed_of_its_own_vms_and_of_what_a_card_can_send(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        web, db = await rig.running("web", constraints=on("a")), await rig.running("db")
        other = await rig.running("other", constraints=on("c"))
        to_db = mac_of(db.id, 0)
        await tell(rig, "c", FlowInfo(web.id, to_db, 10**12), FlowInfo("vm-nobody", to_db, 10**12))
        await tell(rig, "b", FlowInfo(other.id, mac_of(web.id, 0), 10**12))
        await tell(rig, "a", FlowInfo(web.id, mac_of(web.id, 0), 10**12))  # with itself
        await tell(rig, "a", FlowInfo(web.id, "00:11:22:33:44:55", 10**12))  # a router's
        await learn(rig)
        assert await pairs(rig) == []
        assert b"roost_flows_left_out_total 3.0" in rig.plane.telemetry.text()
        rig.clock.move(60)
        await tell(rig, "a", *[FlowInfo(web.id, to_db, 2**62)] * 256)
        await learn(rig)
        (found,) = await pairs(rig)
        assert found.rate <= MOST_MBIT * 61 * 0.7 / 172_800
        cards = [
            FlowInfo(web.id, f"52:54:00:01:{n // 256:02x}:{n % 256:02x}", 1) for n in range(256)
        ]
        for _ in range(MOST_GATHERED // 256 + 1):
            cards = [FlowInfo(each.vm, each.card[::-1], 1) for each in cards]
            await tell(rig, "a", *cards)
        assert len(rig.plane.flows._gathered[rig.number("a")]) <= MOST_GATHERED

    run(database_url, test)


def test_an_address_that_two_vms_have_is_nobodys(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        web = await rig.running("web")
        nics = [NicBody(mode="tap", bridge="br0", mac="52:54:00:AA:00:01")]
        await rig.running("one", nics=nics)
        await tell(rig, "a", FlowInfo(web.id, "52:54:00:aa:00:01", 10**12))
        await rig.running("two", nics=nics)
        await learn(rig)
        assert await pairs(rig) == []
        await rig.plane.vms.delete("two", None, OPERATOR)
        await rig.settle()
        rig.clock.move(60)
        await tell(rig, "a", FlowInfo(web.id, "52:54:00:aa:00:01", 10**12))
        await learn(rig)
        assert len(await pairs(rig)) == 1

    run(database_url, test)


def test_what_is_learnt_comes_up_and_fades_in_days(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        web, db = await rig.running("web"), await rig.running("db")
        hour = FlowInfo(web.id, mac_of(db.id, 0), 60 * 400 * MINUTE_MBIT)
        for _ in range(24):
            rig.clock.move(LEARN_S)
            rig.plane.flows.take(rig.number("a"), [hour])
            await learn(rig)
        assert 100 < (await pairs(rig))[0].rate < 130  # of 400 Mbit/s, after a day
        rig.clock.move(FADE_S)
        await learn(rig)  # what was too little to be written each hour is by now
        rate, seen = (await pairs(rig))[0].rate, len(await rig.rows(select(traffic)))
        assert seen == 1
        await learn(rig)
        assert (await pairs(rig))[0].rate == rate  # nothing is new, and it is not old yet
        rig.clock.move(2 * 86_400)
        await learn(rig)
        assert (await pairs(rig))[0].rate == pytest.approx(rate / 2, rel=0.01)
        rig.clock.move(60 * 86_400)
        await learn(rig)
        assert await pairs(rig) == []
        assert rig.plane.topology.matrix.learnt_ms is None

    run(database_url, test, dated=True)


def test_what_hardly_changes_is_not_written_each_hour_and_nothing_of_it_is_lost(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        web, db = await rig.running("web"), await rig.running("db")
        hour = FlowInfo(web.id, mac_of(db.id, 0), 60 * 400 * MINUTE_MBIT)

        async def listen(hours: int) -> int:
            """Return how often what was learnt is written in so many hours of even traffic."""
            before = len(await rig.rows(WRITTEN))
            for _ in range(hours):
                rig.clock.move(LEARN_S)
                rig.plane.flows.take(rig.number("a"), [hour])
                await learn(rig)
            return len(await rig.rows(WRITTEN)) - before

        await listen(14 * 24)
        assert await listen(48) <= 48 * LEARN_S / FADE_S
        assert (await pairs(rig))[0].rate == pytest.approx(400, rel=0.05)

    run(database_url, test, dated=True)


def test_all_vms_of_a_host_together_send_no_more_than_a_card_can(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        talkers = [await rig.running(f"web-{n}", constraints=on("a")) for n in range(4)]
        db = await rig.running("db", constraints=on("b"))
        lies = [FlowInfo(each.id, mac_of(db.id, 0), 2**62) for each in talkers]
        await tell(rig, "a", *lies)
        await learn(rig)
        found = await pairs(rig)
        assert len(found) == 4
        assert sum(each.rate for each in found) <= MOST_MBIT * 61 * 0.7 / 172_800

    run(database_url, test)


def test_a_vm_that_is_gone_is_forgotten_and_a_new_name_is_shown(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await racks(rig)
        web, db = await rig.running("web"), await rig.running("db")
        await tell(rig, "a", FlowInfo(web.id, mac_of(db.id, 0), 10**12))
        await learn(rig)
        await rig.plane.vms.set("db", None, SetVM(name="database"), OPERATOR)
        (found,) = await pairs(rig)
        assert "default/database" in (found.source, found.dest)
        await rig.plane.vms.delete("database", None, OPERATOR)
        await rig.settle()
        (found,) = await pairs(rig)
        assert not found.known
        rig.clock.move(FADE_S)
        await learn(rig)
        assert await pairs(rig) == []

    run(database_url, test, dated=True)


@pytest.mark.turns(1)
def test_a_process_that_hears_little_adds_it_as_often_as_one_that_hears_much(
    postgres_url: str,
) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await racks(first)
        web = await first.running("web", constraints=on("a"))
        db = await first.running("db", constraints=on("b"))
        other = await first.running("other", constraints=on("b"))
        await second.plane.follower.catch_up()
        much = FlowInfo(web.id, mac_of(db.id, 0), 10**11)
        little = FlowInfo(db.id, mac_of(other.id, 0), 10**9)
        waited = longest = 0.0
        for _ in range(60):
            for rig, host, said in ((first, "a", much), (second, "b", little)):
                rig.clock.move(LEARN_S / 2)  # it is one clock
                rig.plane.flows.take(rig.number(host), [said])
                await rig.plane.flows.learn()
                await first.plane.follower.catch_up()
                await second.plane.follower.catch_up()
            waited = waited + LEARN_S if second.plane.flows._gathered else 0.0
            longest = max(longest, waited)
        assert longest <= FADE_S

    run_two(postgres_url, test, dated=True)


@pytest.mark.turns(1)
def test_what_two_processes_have_heard_is_added(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await racks(first)
        web = await first.running("web", constraints=on("a"))
        db = await first.running("db", constraints=on("b"))
        await second.plane.follower.catch_up()
        first.plane.flows.take(first.number("a"), [FlowInfo(web.id, mac_of(db.id, 0), 10**11)])
        second.plane.flows.take(first.number("b"), [FlowInfo(db.id, mac_of(web.id, 0), 10**11)])
        await first.plane.flows.learn()
        await second.plane.flows.learn()
        await first.plane.follower.catch_up()
        (found,) = await pairs(first)
        assert found.rate == pytest.approx(2 * 8e5 * 0.693147 / 172_800, rel=1e-3)
        dry = DryRun(name="web-2", demand=body_of("web-2").demand)
        assert (await second.plane.questions.dry_run(dry, OPERATOR)).host

    run_two(postgres_url, test)
