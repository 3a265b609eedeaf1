"""What every provider must do, whatever goes wrong in between; one function for each law."""

from typing import Protocol, runtime_checkable

import pytest

from roost.base.units import GIB
from roost.model.job import Bootstrap, Launch, MachineType, Market
from roost.providers.base import MACHINE_TAG, OWNER_TAG, Provider
from roost.providers.errors import (
    BadCredentials,
    MachineGone,
    NoCapacity,
    ProviderError,
    QuotaReached,
    Throttled,
    Unreachable,
)

#: What a fault is, and which error says what to do about it.
FAULTS: dict[str, type[ProviderError]] = {
    "capacity": NoCapacity,
    "quota": QuotaReached,
    "throttled": Throttled,
    "credentials": BadCredentials,
    "broken": Unreachable,
}


class Rig(Protocol):
    """A provider under test, and what every cloud can be made to do."""

    #: Faults of `FAULTS` that this cloud knows.
    faults: tuple[str, ...]
    remembers_gone: bool  # the tokens of machines that were given back

    def provider(self) -> Provider:
        """Return a provider; every call another one, as of another process."""

    def fault(self, kind: str) -> None:
        """Let the next launch fail so; an empty kind ends it."""


@runtime_checkable
class LosesAnswers(Rig, Protocol):
    """A cloud whose answers can be lost."""

    def lose_next_answer(self) -> None:
        """Let the next launch be carried out, and its answer be lost."""


@runtime_checkable
class HidesNew(Rig, Protocol):
    """A cloud whose lists can lag."""

    def hide_new(self) -> None:
        """Let lists not show what is new, for a while."""


async def order(
    provider: Provider,
    token: str = "machine-1",
    owner: str = "plane-1",
    market: Market = "on_demand",
) -> Launch:
    """Return a launch of the cheapest type."""
    types = await provider.machine_types()
    tags = ((OWNER_TAG, owner), ("roost-pool", "p"), (MACHINE_TAG, token))
    bootstrap = Bootstrap("http://127.0.0.1:1", token, "join-token")
    return Launch(token, types[0], market, bootstrap, tags=tags)


async def types_have_amounts_and_prices(rig: Rig) -> None:
    """Every type has amounts, a name of its own and a price that is not negative."""
    types = await rig.provider().machine_types()
    assert types
    assert len({each.name for each in types}) == len(types)
    for each in types:
        assert isinstance(each, MachineType)
        assert each.cpu_milli > 0
        assert each.memory_bytes > GIB // 16
        assert each.price_micro >= 0


async def a_machine_is_found_by_its_owner(rig: Rig) -> None:
    """A machine is found by its id and its owner's tag, from another process too."""
    provider = rig.provider()
    made = await provider.launch(await order(provider))
    assert made.machine == "machine-1"
    other = rig.provider()
    assert (await other.describe(made.cloud_id)).state in ("starting", "running")
    assert [each.cloud_id for each in await other.machines("plane-1")] == [made.cloud_id]
    assert list(await other.machines("plane-2")) == []


async def a_token_makes_one_machine(rig: Rig) -> None:
    """The same token is the same machine; another token another one."""
    provider = rig.provider()
    first = await provider.launch(await order(provider))
    again = await provider.launch(await order(provider))
    elsewhere = await rig.provider().launch(await order(provider))
    second = await provider.launch(await order(provider, "machine-2"))
    assert first.cloud_id == again.cloud_id == elsewhere.cloud_id != second.cloud_id
    assert len(await provider.machines("plane-1")) == 2


async def a_lost_answer_makes_no_second_machine(rig: LosesAnswers) -> None:
    """A launch whose answer was lost is asked again, and answered by the machine it made."""
    provider = rig.provider()
    asked = await order(provider)
    rig.lose_next_answer()
    with pytest.raises(Unreachable):
        await provider.launch(asked)
    made = await rig.provider().launch(asked)
    assert [each.cloud_id for each in await provider.machines("plane-1")] == [made.cloud_id]


async def a_list_that_lags_makes_no_second_machine(rig: HidesNew) -> None:
    """A machine that lists do not show yet is still the one of its token."""
    provider = rig.provider()
    asked = await order(provider)
    made = await provider.launch(asked)
    rig.hide_new()
    assert list(await provider.machines("plane-1")) == []
    rig.hide_new()
    assert (await rig.provider().launch(asked)).cloud_id == made.cloud_id


async def a_machine_is_given_back_once_and_for_all(rig: Rig) -> None:
    """What was terminated is gone, may be terminated again, and its token makes nothing new."""
    provider = rig.provider()
    asked = await order(provider)
    made = await provider.launch(asked)
    await provider.terminate(made.cloud_id)
    await provider.terminate(made.cloud_id)
    left = [each for each in await provider.machines("plane-1") if each.state != "stopping"]
    assert left == []
    if rig.remembers_gone:
        with pytest.raises(MachineGone):
            await rig.provider().launch(asked)


async def what_never_was_is_gone(rig: Rig, unknown: str) -> None:
    """Nobody knows a machine that never was; giving it back is no harm."""
    provider = rig.provider()
    with pytest.raises(MachineGone):
        await provider.describe(unknown)
    await provider.terminate(unknown)


async def a_fault_says_what_to_do_next(rig: Rig, kind: str) -> None:
    """A fault is the error that says what to do next; nothing is rented, and later it works."""
    provider = rig.provider()
    asked = await order(provider)
    rig.fault(kind)
    with pytest.raises(FAULTS[kind]) as caught:
        await provider.launch(asked)
    assert type(caught.value) is FAULTS[kind]
    assert "secret" not in str(caught.value.as_json())
    rig.fault("")
    assert (await provider.launch(asked)).machine == "machine-1"
    assert len(await provider.machines("plane-1")) == 1
