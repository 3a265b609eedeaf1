"""EC2 behind the port: launch by client token, zones in turn, tags, types with prices, spot.

A client token names one zone's request, because EC2 refuses a token that comes with other words. A
launch that is asked again first looks for the machine by its tag; when the list does not show it
yet it goes the same way through the zones, with the same tokens, and gets the same machine. A zone
that had nothing is passed over for a while. boto3 blocks, so all of it runs in threads; it retries
nothing by itself: the caller knows better when.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Any, TypeVar

from roost.base.clock import Clock
from roost.base.errors import InvalidRequest
from roost.model.job import CloudMachine, Launch, MachineType
from roost.providers.aws.account import AwsAccount, AwsCredentials
from roost.providers.aws.answers import shown, troubles
from roost.providers.base import MACHINE_TAG, MOST_MACHINES, OWNER_TAG
from roost.providers.bootstrap import MOST_SCRIPT, start_script
from roost.providers.errors import MachineGone, NoCapacity, Refused

T = TypeVar("T")
#: How long a zone that had no such machine is asked last.
_PASSED_OVER_S = 120.0
_MICRO = 1_000_000
#: Types that one question may name.
_MOST_NAMES = 100
_GIB = 2**30
#: What a machine has for disk unless its type says more: the root volume of our images.
_ROOT_BYTES = 20 * _GIB


class AwsProvider:
    """Machines of one account in one region of EC2."""

    name = "aws"

    def __init__(
        self,
        account: AwsAccount,
        credentials: AwsCredentials,
        *,
        clock: Clock,
        wait_s: float = 30.0,
    ) -> None:
        self._account, self._clock = account, clock
        self._ec2 = _client(account, credentials, wait_s)
        self._empty: dict[tuple[str, str, str], float] = {}  # type, market, zone: until when

    async def machine_types(self) -> Sequence[MachineType]:
        """Return the account's types that have a price, with spot prices of now."""
        return await self._call(self._machine_types)

    async def launch(self, launch: Launch) -> CloudMachine:
        """Rent an instance, in the first zone that has one."""
        return await self._call(lambda: self._launch(launch))

    async def describe(self, cloud_id: str) -> CloudMachine:
        """Return one instance as it is now."""
        found = await self._call(lambda: self._find(InstanceIds=[cloud_id]))
        if not found:
            raise MachineGone("aws", f"there is no instance {cloud_id}")
        return found[0]

    async def machines(self, owner: str) -> Sequence[CloudMachine]:
        """Return the instances with the owner's tag that are not terminated."""
        states = ["pending", "running", "shutting-down", "stopping", "stopped"]
        filters = [_filter(f"tag:{OWNER_TAG}", owner), _filter("instance-state-name", *states)]
        return await self._call(lambda: self._find(Filters=filters))

    async def terminate(self, cloud_id: str) -> None:
        """Terminate an instance."""
        try:
            await self._call(lambda: self._ec2.terminate_instances(InstanceIds=[cloud_id]))
        except MachineGone:
            return

    async def close(self) -> None:
        """Close connections to EC2."""
        self._ec2.close()

    async def _call(self, what: Callable[[], T]) -> T:
        def call() -> T:
            with troubles():
                return what()

        return await asyncio.to_thread(call)

    # Launching

    def _launch(self, launch: Launch) -> CloudMachine:
        known = self._find(Filters=[_filter(f"tag:{MACHINE_TAG}", launch.token)])
        if living := [each for each in known if each.state != "gone"]:
            return living[0]
        if known:
            raise MachineGone("aws", f"the instance of {launch.token} was terminated")
        zones = self._zones(launch)
        last: NoCapacity | None = None
        for zone in zones:
            try:
                with troubles():
                    answer = self._ec2.run_instances(**self._request(launch, zone))
            except NoCapacity as error:
                key = launch.type.name, launch.market, zone
                self._empty[key] = self._clock.monotonic() + _PASSED_OVER_S
                last = error
                continue
            return self._made(launch, answer)
        assert last is not None
        raise last

    def _made(self, launch: Launch, answer: Any) -> CloudMachine:
        """Return the machine of an answer, which may be an old one's to the same token."""
        (instance,) = answer["Instances"]
        machine = shown(instance)
        if machine.state == "gone":
            raise MachineGone("aws", f"the instance of {launch.token} was terminated")
        return machine

    def _zones(self, launch: Launch) -> list[str]:
        """Return the zones to try, those that had nothing a moment ago last."""
        zones = list(self._account.zones) or [""]
        if launch.region and launch.region != self._account.region:
            zones = [launch.region]
        now = self._clock.monotonic()

        def is_empty(zone: str) -> bool:
            return self._empty.get((launch.type.name, launch.market, zone), now) > now

        return sorted(zones, key=is_empty)

    def _request(self, launch: Launch, zone: str) -> dict[str, Any]:
        account = self._account
        image = launch.image or account.image
        if not image:
            raise Refused("aws", "neither the pool nor the account names an image (ami-...)")
        script = start_script(launch.bootstrap, cloud="aws")
        if len(script) > MOST_SCRIPT:
            raise Refused("aws", f"what the machine does first has more than {MOST_SCRIPT} bytes")
        tags = [{"Key": key, "Value": value} for key, value in _tags(launch).items()]
        request: dict[str, Any] = {
            "ImageId": image,
            "InstanceType": launch.type.name,
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": client_token(launch.token, zone),
            "UserData": script,
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        }
        if zone:
            request["Placement"] = {"AvailabilityZone": zone}
        if subnet := account.subnets.get(zone):
            request["SubnetId"] = subnet
        if account.security_groups:
            request["SecurityGroupIds"] = list(account.security_groups)
        if account.instance_profile:
            request["IamInstanceProfile"] = {"Name": account.instance_profile}
        if account.key_name:
            request["KeyName"] = account.key_name
        if launch.market == "spot":
            request["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                },
            }
        return request

    # Looking

    def _find(self, **asked: Any) -> list[CloudMachine]:
        found: list[Any] = []
        for page in self._ec2.get_paginator("describe_instances").paginate(**asked):
            for reservation in page["Reservations"]:
                found += reservation["Instances"]
            if len(found) > MOST_MACHINES:
                raise Refused("aws", f"the account has more than {MOST_MACHINES} such instances")
        return [shown(each) for each in found]

    # Types

    def _machine_types(self) -> list[MachineType]:
        names = sorted(self._account.prices_micro)
        if not names:
            raise Refused("aws", "the account's option prices names no machine type")
        spot = self._spot_prices(names)
        found = []
        pages = self._ec2.get_paginator("describe_instance_types")
        for page in pages.paginate(InstanceTypes=names):
            found += [
                self._type(each, spot) for each in page["InstanceTypes"] if self._offers(each)
            ]
        return sorted(found, key=lambda each: (each.price_micro, each.name))

    def _offers(self, told: Any) -> bool:
        name, wanted = told["InstanceType"], self._account.types
        named = not wanted or any(
            name == each or (each.endswith(".") and name.startswith(each)) for each in wanted
        )
        return named and name in self._account.prices_micro

    def _type(self, told: Any, spot: dict[str, int]) -> MachineType:
        name = told["InstanceType"]
        own_disk = told.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0) * 10**9
        architectures = told.get("ProcessorInfo", {}).get("SupportedArchitectures", ["x86_64"])
        return MachineType(
            name=name,
            cpu_milli=1000 * int(told["VCpuInfo"]["DefaultVCpus"]),
            memory_bytes=int(told["MemoryInfo"]["SizeInMiB"]) * 2**20,
            disk_bytes=max(int(own_disk), _ROOT_BYTES),
            price_micro=self._account.prices_micro[name],
            spot_price_micro=spot.get(name),
            regions=self._account.zones,
            labels=(("architecture", str(architectures[0])),),
        )

    def _spot_prices(self, names: list[str]) -> dict[str, int]:
        """Return what an hour of each type costs now on the spot market, in its dearest zone.

        From now on means: the prices that hold now. Without a time EC2 tells those of 90 days.
        """
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        newest: dict[tuple[str, str], tuple[datetime, int]] = {}
        pages = self._ec2.get_paginator("describe_spot_price_history")
        for start in range(0, len(names), _MOST_NAMES):
            for page in pages.paginate(
                InstanceTypes=names[start : start + _MOST_NAMES],
                ProductDescriptions=["Linux/UNIX"],
                StartTime=now,
                PaginationConfig={"PageSize": 1000},
            ):
                for each in page["SpotPriceHistory"]:
                    key = each["InstanceType"], each.get("AvailabilityZone", "")
                    price = each["Timestamp"], int(float(each["SpotPrice"]) * _MICRO)
                    newest[key] = max(price, newest.get(key, price))
        found: dict[str, int] = {}
        for (name, zone), (_, micro) in newest.items():
            if not self._account.zones or zone in self._account.zones:
                found[name] = max(micro, found.get(name, 0))
        return found


def client_token(token: str, zone: str) -> str:
    """Return the client token of a launch in a zone: at most 64 characters, the same each time."""
    return f"roost-{sha256(f'{token}/{zone}'.encode()).hexdigest()[:48]}"


def _tags(launch: Launch) -> dict[str, str]:
    return {"Name": launch.token, **dict(launch.tags), MACHINE_TAG: launch.token}


def _filter(name: str, *values: str) -> dict[str, Any]:
    return {"Name": name, "Values": list(values)}


@cache
def _loader() -> Any:
    """Return what reads the description of EC2, a second's work, once for all accounts."""
    import botocore.loaders

    return botocore.loaders.create_loader()


def _session() -> Any:
    import botocore.session

    session = botocore.session.Session()
    session.register_component("data_loader", _loader())
    return session


def _client(account: AwsAccount, credentials: AwsCredentials, wait_s: float) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise InvalidRequest(
            "machines of EC2 need boto3, which is not installed",
            hint="Maybe: pip install 'roost[aws]'",
        ) from error
    session = boto3.session.Session(
        botocore_session=_session(),
        aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key,
        aws_session_token=credentials.session_token,
        region_name=account.region,
    )
    config = Config(
        connect_timeout=min(10.0, wait_s), read_timeout=wait_s, retries={"total_max_attempts": 1}
    )
    return session.client("ec2", endpoint_url=account.endpoint or None, config=config)
