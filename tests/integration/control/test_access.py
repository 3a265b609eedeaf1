import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sqlalchemy import Connection, select

from roost.base.clock import RealClock
from roost.base.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unauthorized
from roost.base.ids import IdSource
from roost.control.admin.projects import Projects
from roost.ledger.schema.changes import changes_decoder
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import events, tokens
from roost.ledger.store import Store
from roost.parts import access as access_module
from roost.parts.access import Access, Principal
from roost.wire.bodies import CreateJoinToken, CreateProject, CreateToken, JoinBody
from tests.databases import opened
from tests.examining import doctor

ROOT = Principal("root", "admin")


class MovableClock(RealClock):
    """The machine's clock, whose wall can be moved."""

    offset_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.offset_ms


class Counting:
    """A store that counts what is read."""

    def __init__(self, store: Store) -> None:
        self.store, self.reads = store, 0

    async def read(self, question: Callable[[Connection], Any]) -> Any:
        self.reads += 1
        return await self.store.read(question)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class Place:
    """One process: a store, its access, and the follower between them."""

    def __init__(self, store: Store, clock: MovableClock) -> None:
        self.store, self.clock = store, clock
        self.counting = Counting(store)
        self.access = Access(self.counting, clock, IdSource(clock.wall_ms))  # type: ignore[arg-type]
        self.decode = changes_decoder(self.access.follows)
        store.listener = self.hear

    def hear(self, heard: list[Event]) -> None:
        for event in heard:
            self.access.follow(event, self.decode(event.changes))


def run(url: str, test: Callable[[Place], Awaitable[None]]) -> None:
    async def both() -> None:
        clock = MovableClock()
        async with opened(url, clock) as store:
            await test(Place(store, clock))
            assert (await doctor(store)).findings == []

    asyncio.run(both())


def test_a_new_token_opens_until_it_is_deleted(database_url: str) -> None:
    async def test(place: Place) -> None:
        access = place.access
        assert await access.ensure_admin()
        made = await access.create_token(CreateToken(name="ci", role="operator"), ROOT)
        assert made.secret is not None
        assert access.principal(made.secret) is None
        assert await access.check(made.secret) == Principal("ci", "operator")
        assert access.principal(made.secret) == Principal("ci", "operator")
        await access.delete_token(made.id, ROOT)
        await asyncio.sleep(0)  # the listener is told on the next turn of the loop
        assert access.principal(made.secret) is None
        with pytest.raises(Unauthorized):
            await access.check(made.secret)

    run(database_url, test)


def test_the_secret_is_nowhere_in_the_database(database_url: str) -> None:
    async def test(place: Place) -> None:
        made = await place.access.create_token(CreateToken(name="ci"), ROOT)
        assert made.secret is not None
        secret = made.secret.rsplit("_", 1)[1]

        def everything(connection: Connection) -> str:
            return str(
                [
                    tuple(row)
                    for table in (tokens, events)
                    for row in connection.execute(select(table))
                ]
            )

        assert secret not in await place.store.read(everything)
        hashes = await place.store.read(lambda c: list(c.execute(select(tokens.c.hash)).scalars()))
        said = await place.store.read(lambda c: list(c.execute(select(events.c.changes)).scalars()))
        assert not any(each in text for each in hashes for text in said)

    run(database_url, test)


@pytest.mark.parametrize(
    "bearer",
    ["", "x", "roost_", "roost__", "roost_tok-1", "roost_tok-1_", "roost_tok_1_2", "a" * 5000,
     "roost_tok-1_" + "a" * 5000],
)  # fmt: skip
def test_what_is_no_token_is_refused_without_a_query(sqlite_url: str, bearer: str) -> None:
    async def test(place: Place) -> None:
        with pytest.raises(Unauthorized):
            await place.access.check(bearer)
        assert place.counting.reads == 0

    run(sqlite_url, test)


def test_a_wrong_secret_is_refused_without_a_second_query(database_url: str) -> None:
    async def test(place: Place) -> None:
        made = await place.access.create_token(CreateToken(name="ci"), ROOT)
        for guess in range(50):
            with pytest.raises(Unauthorized):
                await place.access.check(f"roost_{made.id}_{guess:040x}")
        assert place.counting.reads == 1
        assert made.secret is not None
        assert (await place.access.check(made.secret)).name == "ci"

    run(database_url, test)


def test_a_flood_of_unknown_tokens_shares_its_queries(database_url: str) -> None:
    async def test(place: Place) -> None:
        checks = [place.access.check(f"roost_tok-{n}_{n:040x}") for n in range(3000)]
        answers = await asyncio.gather(*checks, return_exceptions=True)
        assert all(isinstance(answer, Unauthorized) for answer in answers)
        assert place.counting.reads <= 3000 / access_module.MOST_ASKED + 2
        before = place.counting.reads
        for n in range(100):
            with pytest.raises(Unauthorized):
                await place.access.check(f"roost_tok-{n}_{n:040x}")
        assert place.counting.reads == before

    run(database_url, test)


def test_what_is_remembered_of_bad_tokens_is_bounded(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "MOST_ABSENT", 100)

    async def test(place: Place) -> None:
        checks = [place.access.check(f"roost_tok-{n}_{n:040x}") for n in range(1000)]
        await asyncio.gather(*checks, return_exceptions=True)
        assert len(place.access._absent) == 100

    run(sqlite_url, test)


def test_a_waiter_that_gives_up_does_not_disturb_the_others(sqlite_url: str) -> None:
    async def test(place: Place) -> None:
        made = await place.access.create_token(CreateToken(name="ci"), ROOT)
        assert made.secret is not None
        first = asyncio.ensure_future(place.access.check(made.secret))
        second = asyncio.ensure_future(place.access.check(made.secret))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).name == "ci"
        with pytest.raises(asyncio.CancelledError):
            await first

    run(sqlite_url, test)


def test_a_token_ends_at_its_time_and_comes_back_when_the_clock_does(database_url: str) -> None:
    async def test(place: Place) -> None:
        body = CreateToken(name="short", expires_in_s=60)
        made = await place.access.create_token(body, ROOT)
        assert made.secret is not None
        await place.access.check(made.secret)
        place.clock.offset_ms += 61_000
        assert place.access.principal(made.secret) is None
        with pytest.raises(Unauthorized, match="expired"):
            await place.access.check(made.secret)
        place.clock.offset_ms -= 61_000
        assert place.access.principal(made.secret) is not None

    run(database_url, test)


def test_a_token_deleted_while_it_is_looked_up_is_not_remembered(sqlite_url: str) -> None:
    async def test(place: Place) -> None:
        made = await place.access.create_token(CreateToken(name="ci"), ROOT)
        assert made.secret is not None
        store = place.counting.store
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow(question: Callable[[Connection], Any]) -> Any:
            answer = await store.read(question)
            begun.set()
            await go_on.wait()
            return answer

        place.counting.read = slow  # type: ignore[method-assign]
        checking = asyncio.ensure_future(place.access.check(made.secret))
        await begun.wait()
        await place.access.delete_token(made.id, ROOT)
        await asyncio.sleep(0)
        go_on.set()
        await checking  # it was valid when it was asked
        assert place.access.principal(made.secret) is None

    run(sqlite_url, test)


def test_the_last_admin_token_stays(database_url: str) -> None:
    async def test(place: Place) -> None:
        access = place.access
        text = await access.ensure_admin()
        assert text is not None
        assert await access.ensure_admin() is None
        first = (await access.list_tokens()).tokens[0].id
        short = CreateToken(name="short", role="admin", expires_in_s=60)
        await access.create_token(short, ROOT)
        place.clock.offset_ms += 61_000
        with pytest.raises(Conflict, match="last admin"):
            await access.delete_token(first, ROOT)
        await access.create_token(CreateToken(name="other", role="admin"), ROOT)
        await access.delete_token(first, ROOT)
        with pytest.raises(NotFound):
            await access.delete_token(first, ROOT)

    run(database_url, test)


def test_of_two_who_delete_the_last_two_admins_one_is_refused(postgres_url: str) -> None:
    async def race() -> None:
        clock = MovableClock()
        async with AsyncExitStack() as stack:
            places = [
                Place(await stack.enter_async_context(opened(postgres_url, clock)), clock)
                for _ in range(2)
            ]
            for _ in range(10):
                tokens = [
                    await places[0].access.create_token(CreateToken(name="a", role="admin"), ROOT)
                    for _ in range(2)
                ]
                for old in (await places[0].access.list_tokens()).tokens:
                    if old.id not in [token.id for token in tokens]:
                        await places[0].access.delete_token(old.id, ROOT)
                deleting = [
                    place.access.delete_token(token.id, ROOT)
                    for place, token in zip(places, tokens, strict=True)
                ]
                answers = await asyncio.gather(*deleting, return_exceptions=True)
                assert sorted(type(answer) for answer in answers if answer) == [Conflict]
                assert len((await places[0].access.list_tokens()).tokens) == 1

    asyncio.run(race())


def test_processes_that_start_together_make_one_admin_token(postgres_url: str) -> None:
    async def race() -> None:
        async with AsyncExitStack() as stack:
            clock = MovableClock()
            places = [
                Place(await stack.enter_async_context(opened(postgres_url, clock)), clock)
                for _ in range(3)
            ]
            made = await asyncio.gather(*(place.access.ensure_admin() for place in places))
            assert len([text for text in made if text]) == 1

    asyncio.run(race())


def test_members_need_a_project_that_exists(database_url: str) -> None:
    async def test(place: Place) -> None:
        with pytest.raises(InvalidRequest):
            await place.access.create_token(CreateToken(name="m", role="member"), ROOT)
        with pytest.raises(InvalidRequest):
            await place.access.create_token(CreateToken(name="m", project="default"), ROOT)
        body = CreateToken(name="m", role="member", project="nowhere")
        with pytest.raises(NotFound):
            await place.access.create_token(body, ROOT)

    run(database_url, test)


def test_a_project_that_ends_takes_its_members_tokens_along(database_url: str) -> None:
    async def test(place: Place) -> None:
        projects = Projects(place.store)
        await projects.create(CreateProject(name="lab"), ROOT)
        body = CreateToken(name="m", role="member", project="lab")
        made = await place.access.create_token(body, ROOT)
        assert made.secret is not None
        assert (await place.access.check(made.secret)).project == "lab"
        await projects.delete("lab", ROOT)
        await asyncio.sleep(0)
        with pytest.raises(Unauthorized):
            await place.access.check(made.secret)

    run(database_url, test)


def test_an_agent_joins_once_and_gets_its_own_credential(database_url: str) -> None:
    async def test(place: Place) -> None:
        access = place.access
        made = await access.create_join_token(CreateJoinToken(), Principal("op", "operator"))
        assert made.secret is not None
        joined = await access.join(JoinBody(host="h1"), made.secret)
        assert await access.check(joined.credential) == Principal("agent/h1", "agent", None, "h1")
        with pytest.raises(Unauthorized, match="works once"):
            await access.join(JoinBody(host="h1"), made.secret)

    run(database_url, test)


def test_a_host_that_joins_again_loses_its_old_credential(database_url: str) -> None:
    async def test(place: Place) -> None:
        access, credentials = place.access, []
        for _ in range(2):
            made = await access.create_join_token(CreateJoinToken(), ROOT)
            assert made.secret is not None
            credentials.append((await access.join(JoinBody(host="h1"), made.secret)).credential)
            await asyncio.sleep(0)
            await access.check(credentials[-1])
        assert access.principal(credentials[0]) is None
        with pytest.raises(Unauthorized):
            await access.check(credentials[0])

    run(database_url, test)


def test_a_bound_join_token_is_for_its_host_alone_and_is_not_spent_by_others(
    database_url: str,
) -> None:
    async def test(place: Place) -> None:
        made = await place.access.create_join_token(CreateJoinToken(host="h1"), ROOT)
        assert made.secret is not None
        with pytest.raises(Forbidden):
            await place.access.join(JoinBody(host="h2"), made.secret)
        assert (await place.access.join(JoinBody(host="h1"), made.secret)).host == "h1"

    run(database_url, test)


def test_expired_wrong_and_ordinary_tokens_do_not_join(database_url: str) -> None:
    async def test(place: Place) -> None:
        made = await place.access.create_join_token(CreateJoinToken(expires_in_s=60), ROOT)
        ordinary = await place.access.create_token(CreateToken(name="a", role="operator"), ROOT)
        assert made.secret is not None
        assert ordinary.secret is not None
        place.clock.offset_ms += 61_000
        for bearer in (made.secret, ordinary.secret, f"roost_{made.id}_{'0' * 40}"):
            with pytest.raises(Unauthorized):
                await place.access.join(JoinBody(host="h1"), bearer)

    run(database_url, test)


def test_many_who_join_with_one_token_have_one_winner(database_url: str) -> None:
    async def race() -> None:
        clock = MovableClock()
        async with AsyncExitStack() as stack:
            count = 2 if database_url.startswith("postgresql") else 1
            places = [
                Place(await stack.enter_async_context(opened(database_url, clock)), clock)
                for _ in range(count)
            ]
            made = await places[0].access.create_join_token(CreateJoinToken(), ROOT)
            assert made.secret is not None
            joining = [
                places[n % count].access.join(JoinBody(host=f"h{n}"), made.secret) for n in range(8)
            ]
            answers = await asyncio.gather(*joining, return_exceptions=True)
            assert sum(isinstance(answer, Unauthorized) for answer in answers) == 7
            left = [token.role for token in (await places[0].access.list_tokens()).tokens]
            assert left == ["agent"]

    asyncio.run(race())
