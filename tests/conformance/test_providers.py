"""Every provider passes the one suite, and a provider that makes a machine twice does not."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from roost.base.clock import RealClock
from roost.base.errors import (
    NoFit,
    NotFound,
    QuotaExceeded,
    RoostError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from roost.base.units import GIB
from roost.model.job import Launch, MachineType
from roost.model.resources import Demand
from roost.providers.base import Provider
from roost.providers.errors import NoCapacity
from roost.providers.fleet import FleetProvider, FleetVM
from roost.providers.local import LocalProvider
from tests.conformance import providers as suite
from tests.conformance.azurestub import AzureStub
from tests.conformance.azurestub import serving as serving_azure
from tests.conformance.ec2proxy import Ec2Proxy, serving

Law = Callable[..., Coroutine[Any, Any, None]]


class LocalRig:
    """Worker processes of this machine: here they only sleep."""

    faults = ("capacity",)
    remembers_gone = True

    def __init__(self, folder: Path) -> None:
        self.folder, self._most = folder, 8
        self._types = [MachineType("small", 1000, GIB, GIB, 1000)]

    def provider(self) -> Provider:
        """Return another provider of the same folder."""

        def command(launch: Launch, data: Path) -> tuple[list[str], dict[str, str]]:
            return ["sh", "-c", "sleep 1000 & sleep 1000; true", str(data)], {}

        rig = self

        class Limited(LocalProvider):
            """A provider whose room the test changes."""

            def _check_room(self, launch: Launch) -> None:
                if len(self._living()) >= rig._most:
                    raise NoCapacity("local", "no room")

        return Limited(self.folder, command, self._types, clock=RealClock())

    def fault(self, kind: str) -> None:
        """Leave no room, or room again."""
        self._most = 0 if kind else 8

    def end_all(self) -> None:
        """End what the test left."""
        provider = self.provider()
        for each in self.folder.iterdir() if self.folder.is_dir() else ():
            asyncio.run(provider.terminate(each.name))


class AwsRig:
    """EC2 as moto has it, behind the proxy."""

    faults = tuple(suite.FAULTS)
    remembers_gone = True

    def __init__(self, proxy: Ec2Proxy, address: str, region: str) -> None:
        self.proxy, self._address, self.region = proxy, address, region

    def provider(self) -> Provider:
        """Return another provider of the same account."""
        from roost.providers.aws.account import AwsCredentials, read_account
        from roost.providers.aws.provider import AwsProvider

        account = read_account(
            {
                "region": self.region,
                "zones": f"{self.region}a,{self.region}b",
                "image": "ami-12c6146b",
                "prices": "t3.micro=0.0104,m5.large=0.096,c5.xlarge=0.17",
                "endpoint": self._address,
            }
        )
        return AwsProvider(account, AwsCredentials("key", "secret"), clock=RealClock())

    def fault(self, kind: str) -> None:
        """Let the next launch fail; with no capacity, in both zones."""
        self.proxy.faults = [kind, kind] if kind == "capacity" else [kind] if kind else []

    def lose_next_answer(self) -> None:
        """Hang up after the next launch."""
        self.proxy.faults = ["lost answer"]

    def hide_new(self) -> None:
        """Show nothing in the next list."""
        self.proxy.hidden_lists = 1


class FleetRig:
    """VMs of a control plane that is held in memory."""

    faults = ("capacity", "quota", "throttled", "credentials", "broken")
    remembers_gone = True

    def __init__(self) -> None:
        self._vms: dict[str, FleetVM] = {}
        self._fault, self._lose = "", False

    def provider(self) -> Provider:
        """Return another provider of the same control plane."""
        return FleetProvider(self, [MachineType("small", 1000, GIB, GIB, 1000)])

    def fault(self, kind: str) -> None:
        """Let creates fail so."""
        self._fault = kind

    def lose_next_answer(self) -> None:
        """Lose the answer to the next create."""
        self._lose = True

    async def create(
        self, name: str, demand: Demand, *, image: str, user_data: str, labels: Mapping[str, str]
    ) -> FleetVM:
        """Create a VM in memory."""
        errors: dict[str, RoostError] = {
            "capacity": NoFit("insufficient_resources", "no host fits", {}),
            "quota": QuotaExceeded("the project may have no more"),
            "throttled": TooManyRequests("too many"),
            "credentials": Unauthorized("no valid token"),
            "broken": Unavailable("nobody answers"),
        }
        if self._fault:
            raise errors[self._fault]
        made = self._vms.setdefault(name, FleetVM(f"vm-{name}", "running", dict(labels)))
        if made.state == "deleted":
            raise NotFound(f"no VM {made.id}")
        if self._lose:
            self._lose = False
            raise Unavailable("the connection broke")
        return made

    async def get(self, vm_id: str) -> FleetVM:
        """Return a VM."""
        for each in self._vms.values():
            if each.id == vm_id and each.state != "deleted":
                return each
        raise NotFound(f"no VM {vm_id}")

    async def labelled(self, label: str, value: str) -> list[FleetVM]:
        """Return the VMs with a label."""
        living = [each for each in self._vms.values() if each.state != "deleted"]
        return [each for each in living if each.labels.get(label) == value]

    async def delete(self, vm_id: str) -> None:
        """Delete a VM."""
        found = await self.get(vm_id)
        name = found.labels["roost-machine"]
        self._vms[name] = FleetVM(found.id, "deleted", found.labels)

    async def close(self) -> None:
        """Close nothing at all."""


class AzureRig:
    """Azure as our stub has it."""

    faults = tuple(suite.FAULTS)
    remembers_gone = False

    def __init__(self, stub: AzureStub, address: str) -> None:
        self.stub, self._address = stub, address

    def provider(self) -> Provider:
        """Return another provider of the same account."""
        pytest.importorskip("azure.mgmt.compute", reason="pip install 'roost[azure]'")
        from roost.providers.azure.account import AzureCredentials, read_account
        from roost.providers.azure.provider import AzureProvider

        account = read_account(
            {
                "subscription": "s",
                "resource_group": "g",
                "location": "westeurope",
                "subnet": "/subnets/a",
                "image": "/images/roost",
                "ssh_key": "ssh-ed25519 AAAA",
                "types": "Standard_B1s=1/1GiB/0.0104/0.004,Standard_D2s_v5=2/8GiB/0.096",
                "endpoint": self._address,
            }
        )
        return AzureProvider(account, AzureCredentials("t", "c", "secret"), poll_s=0.0)

    def fault(self, kind: str) -> None:
        """Let creates fail so."""
        self.stub.fault = kind

    def lose_next_answer(self) -> None:
        """Hang up after the next create."""
        self.stub.lose_next = True


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """Run the moto server."""
    pytest.importorskip("moto", reason="pip install 'moto[server,ec2,s3]'")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["local", "roost", "azure", "aws"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[suite.Rig]:
    """Return the rig of every provider, one after the other."""
    if request.param == "local":
        local = LocalRig(tmp_path / "machines")
        yield local
        local.end_all()
        return
    if request.param == "roost":
        yield FleetRig()
        return
    if request.param == "azure":
        stub = AzureStub()
        with serving_azure(stub) as address:
            yield AzureRig(stub, address)
        return
    yield from aws_rig(request)


def aws_rig(request: pytest.FixtureRequest) -> Iterator[AwsRig]:
    """Return a rig of EC2 whose account is empty."""
    import httpx

    behind = request.getfixturevalue("moto")
    httpx.post(f"{behind}/moto-api/reset", timeout=60.0)
    proxy = Ec2Proxy(behind)
    with serving(proxy.answer) as address:
        yield AwsRig(proxy, address, "us-east-1")


LAWS = [
    suite.types_have_amounts_and_prices,
    suite.a_machine_is_found_by_its_owner,
    suite.a_token_makes_one_machine,
    suite.a_machine_is_given_back_once_and_for_all,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_law_holds(rig: suite.Rig, law: Law) -> None:
    asyncio.run(law(rig))


def test_what_never_was_is_gone(rig: suite.Rig) -> None:
    unknown = "i-0123456789abcdef0" if isinstance(rig, AwsRig) else "never"
    asyncio.run(suite.what_never_was_is_gone(rig, unknown))


@pytest.mark.parametrize("kind", list(suite.FAULTS))
def test_a_fault_says_what_to_do_next(rig: suite.Rig, kind: str) -> None:
    if kind not in rig.faults:
        pytest.skip("this provider has no such fault")
    asyncio.run(suite.a_fault_says_what_to_do_next(rig, kind))


@pytest.mark.parametrize(
    ("law", "needs"),
    [
        (suite.a_lost_answer_makes_no_second_machine, suite.LosesAnswers),
        (suite.a_list_that_lags_makes_no_second_machine, suite.HidesNew),
    ],
    ids=["lost answer", "lagging list"],
)
def test_a_law_of_clouds_holds(rig: suite.Rig, law: Law, needs: type) -> None:
    if not isinstance(rig, needs):
        pytest.skip("this provider loses and hides nothing")
    asyncio.run(law(rig))


# Azure alone


def test_a_machine_that_azure_could_not_allocate_is_deleted() -> None:
    """Want of capacity shows at the end of the operation, and what has failed costs money."""
    stub = AzureStub()
    with serving_azure(stub) as address:
        rig = AzureRig(stub, address)
        provider = rig.provider()
        rig.fault("capacity")
        with pytest.raises(NoCapacity):
            asyncio.run(_launch_one(provider))
        assert stub.vms == {}
        assert stub.waited >= 2


async def _launch_one(provider: Provider) -> None:
    await provider.launch(await suite.order(provider))


# EC2 alone


def test_the_suite_finds_a_cloud_that_forgets_tokens(request: pytest.FixtureRequest) -> None:
    """Without idempotence by token (as moto is by itself) a lagging list makes a second machine."""
    rig = next(aws_rig(request))
    with serving(rig.proxy.answer) as rig._address:
        rig.proxy.forgets_tokens = True
        with pytest.raises(AssertionError):
            asyncio.run(suite.a_list_that_lags_makes_no_second_machine(rig))


def test_an_empty_zone_is_passed_over_for_the_next(request: pytest.FixtureRequest) -> None:
    rigs = aws_rig(request)
    rig = next(rigs)
    rig.proxy.empty_zones = {"us-east-1a"}

    async def case() -> None:
        provider = rig.provider()
        made = await provider.launch(await suite.order(provider))
        assert made.region == "us-east-1b"
        rig.proxy.empty_zones = {"us-east-1a", "us-east-1b"}
        with pytest.raises(NoCapacity):
            await provider.launch(await suite.order(provider, "machine-2"))

    asyncio.run(case())
    rigs.close()


def test_a_list_of_spot_machines_is_one_call(request: pytest.FixtureRequest) -> None:
    async def case(rig: AwsRig) -> None:
        provider = rig.provider()
        made = await provider.launch(await suite.order(provider, market="spot"))
        rig.proxy.actions.clear()
        (seen,) = await provider.machines("plane-1")
        assert (seen.cloud_id, seen.market) == (made.cloud_id, "spot")
        assert rig.proxy.actions == ["DescribeInstances"]

    with contextmanager(aws_rig)(request) as rig:
        asyncio.run(case(rig))


def test_a_spot_price_is_that_of_now_in_the_dearest_zone(
    request: pytest.FixtureRequest,
) -> None:
    """Not the dearest of 90 days, and of every type however long the history is."""
    rigs = aws_rig(request)
    rig = next(rigs)
    rig.proxy.page = 2
    rig.proxy.spot_prices = [
        ("t3.micro", "us-east-1a", "0.0100", "2026-01-01T00:00:00.000Z"),
        ("t3.micro", "us-east-1a", "0.0030", "2026-01-03T00:00:00.000Z"),
        ("t3.micro", "us-east-1a", "0.0099", "2026-01-02T00:00:00.000Z"),
        ("t3.micro", "us-east-1b", "0.0040", "2026-01-02T00:00:00.000Z"),
        ("t3.micro", "us-east-1c", "0.0050", "2026-01-02T00:00:00.000Z"),  # no zone of ours
        ("m5.large", "us-east-1b", "0.0500", "2026-01-01T00:00:00.000Z"),
        ("c5.xlarge", "us-east-1a", "0.0900", "2025-12-01T00:00:00.000Z"),
    ]

    types = asyncio.run(rig.provider().machine_types())

    found = {each.name: each.spot_price_micro for each in types}
    assert found == {"t3.micro": 4000, "m5.large": 50_000, "c5.xlarge": 90_000}
    rigs.close()


def test_user_data_holds_no_credentials(request: pytest.FixtureRequest) -> None:
    rigs = aws_rig(request)
    rig = next(rigs)

    async def case() -> str:
        provider = rig.provider()
        request = provider._request(await suite.order(provider), "")  # type: ignore[attr-defined]
        return str(request["UserData"])

    script = asyncio.run(case())
    assert "roost worker" in script
    assert "join-token" in script
    assert "secret" not in script
    assert "key" not in script
    rigs.close()


# Local alone


def test_a_worker_is_found_again_after_a_crash_before_its_note(tmp_path: Path) -> None:
    """Killed between starting a worker and writing that down: the same token finds it."""
    rig = LocalRig(tmp_path / "m")

    async def case() -> None:
        provider = rig.provider()
        asked = await suite.order(provider)
        await provider.launch(asked)
        file = tmp_path / "m/machine-1/machine.json"
        kept = json.loads(file.read_text())
        pid = kept["pid"]
        file.write_text(json.dumps({**kept, "pid": 0, "began": 0}))
        await rig.provider().launch(asked)
        assert json.loads(file.read_text())["pid"] == pid

    asyncio.run(case())
    rig.end_all()


def test_no_process_of_a_machine_is_left(tmp_path: Path) -> None:
    rig = LocalRig(tmp_path / "m")

    async def case() -> None:
        provider = rig.provider()
        made = await provider.launch(await suite.order(provider))
        pid = json.loads((tmp_path / "m/machine-1/machine.json").read_text())["pid"]
        children = Path(f"/proc/{pid}/task/{pid}/children")
        while len(children.read_text().split()) < 2:
            await asyncio.sleep(0.01)
        family = [pid, *map(int, children.read_text().split())]
        await provider.terminate(made.cloud_id)
        assert not [each for each in family if os.path.exists(f"/proc/{each}/exe")]  # noqa: PTH110
        assert (await provider.describe(made.cloud_id)).state == "gone"

    asyncio.run(case())


def test_a_worker_that_ended_by_itself_is_gone(tmp_path: Path) -> None:
    def command(launch: Launch, data: Path) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-c", "pass", str(data)], {}

    async def case() -> None:
        types = [MachineType("small", 1000, GIB, GIB, 0)]
        provider = LocalProvider(tmp_path / "m", command, types, clock=RealClock())
        made = await provider.launch(await suite.order(provider))
        while (await provider.describe(made.cloud_id)).state != "gone":
            await asyncio.sleep(0.02)
        assert list(await provider.machines("plane-1")) == []

    asyncio.run(case())
