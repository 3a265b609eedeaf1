"""What one unit of a reservation keeps, as options and as words on a terminal."""

import pytest

from roost.base.errors import InvalidRequest
from roost.cli.show.reservations import _each, _home
from roost.cli.steering.reservations import _demand
from roost.wire.bodies import DeviceBody
from roost.wire.reservations import KeptDevices, ReservationBody, UnitBody


def test_options_say_devices_cells_and_extended_resources() -> None:
    gpu = {"count": 2, "share_milli": 500, "models": ["a100"]}
    said = {"cpu": "4", "memory": "8GiB", "gpu": gpu, "numa": "one", "extended": ["fpga=2"]}
    found = _demand(said)
    assert found.gpu == DeviceBody(2, 500, ["a100"])
    assert (found.extended, found.numa) == ({"fpga": 2}, "one")


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"gpu": {"models": ["a100"]}}, "--gpu"),
        ({"extended": ["fpga"]}, "NAME=AMOUNT"),
        ({"extended": ["fpga=-1"]}, "NAME=AMOUNT"),
        ({"numa": "three"}, "three"),
    ],
)
def test_what_makes_no_sense_is_refused(said: dict[str, object], wrong: str) -> None:
    with pytest.raises(InvalidRequest, match=wrong):
        _demand({"cpu": "1", "memory": "1GiB", **said})


def test_a_unit_is_shown_with_its_devices() -> None:
    fields = dict.fromkeys(ReservationBody.__struct_fields__, "")
    numbers = {"cpu_milli": 4000, "memory_bytes": 2**30, "disk_bytes": 0, "units": 2}
    gpu = KeptDevices(2, 500, ["a100"], 0)
    body = ReservationBody(
        **{**fields, **numbers, "gpu": gpu, "extended": {"fpga": 1}, "numa": "one"}  # type: ignore[arg-type]
    )
    assert "2 x a100 at 500/1000, 1 fpga, in one NUMA cell" in _each(body)
    unit = UnitBody(unit="r/0000", host="h1", devices=[0, 3], cells=[1])
    assert _home(unit) == "h1 (GPU 0, 3; cell 1)"
