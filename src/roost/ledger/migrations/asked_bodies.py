"""Bodies of creates as schemas before 0005 kept them (`vms.asked`), to stored specs and back.

Frozen with revision 0005: JSON to JSON, by rules that never change, whatever becomes of bodies and
specs later. A spec's own reader is in wire/specs.py.
"""

from hashlib import sha256
from typing import Any

import msgspec

from roost.base.units import parse_bytes, parse_cpu

_decode: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode

#: Fields that mean the same in both, in the order of the stored form.
_SAME = ("strategy", "priority", "on_no_fit", "restart", "start")


def spec_of_asked(asked: str) -> tuple[str, str]:
    """Return the spec that a body means, as text, and its user data."""
    body = _decode.decode(asked)
    spec: dict[str, Any] = {"demand": _demand(body["demand"])}
    if body.get("constraints"):
        spec["constraints"] = body["constraints"]
    if body.get("groups"):
        spec["groups"] = body["groups"]
    if body.get("affinity"):
        spec["affinity"] = [
            {**rule, "selector": dict(sorted(rule["selector"].items()))}
            for rule in body["affinity"]
        ]
    spec |= {name: body[name] for name in _SAME if body.get(name) is not None}
    data = ""
    if body.get("boot") is not None:
        boot = dict(body["boot"])
        data = boot.pop("user_data", "")
        if data:
            boot["user_data"] = f"sha256:{sha256(data.encode()).hexdigest()}"
        spec["boot"] = boot
    if body.get("nics"):
        spec["nics"] = body["nics"]
    return _encode(spec).decode(), data


def asked_of_spec(
    name: str, project: str, labels: dict[str, str], spec_text: str, user_data: str
) -> str:
    """Return the body that a VM would have been created with, as text."""
    spec = _decode.decode(spec_text)
    demand = dict(spec["demand"])
    amounts: dict[str, Any] = {
        "cpu": f"{demand['cpu_milli']}m",
        "memory": demand["memory_bytes"],
        "disk": demand.get("disk_bytes", 0),
    }
    if (devices := demand.get("devices")) is not None:
        gpu = dict(devices)
        if "memory_bytes" in gpu:
            gpu["memory"] = gpu.pop("memory_bytes")
        amounts["gpu"] = gpu
    amounts |= {name: demand[name] for name in ("extended", "numa") if name in demand}
    body: dict[str, Any] = {"name": name, "demand": amounts, "project": project, "labels": labels}
    known = ("constraints", "groups", "affinity", *_SAME, "boot", "nics")
    body |= {name: spec[name] for name in known if name in spec}
    if body.get("boot") is not None:
        boot = {name: value for name, value in body["boot"].items() if name != "user_data"}
        body["boot"] = {**boot, "user_data": user_data} if user_data else boot
    return _encode(body).decode()


def _demand(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "cpu_milli": _cores(body["cpu"]),
        "memory_bytes": _size(body["memory"], "memory"),
    }
    if disk := _size(body.get("disk", 0), "disk"):
        found["disk_bytes"] = disk
    if (gpu := body.get("gpu", 0)) != 0:
        asked = {"count": gpu} if isinstance(gpu, int) else gpu
        devices = {
            "count": asked.get("count", 1),
            "share_milli": asked.get("share_milli", 1000),
            "models": asked.get("models", []),
            "memory_bytes": _size(asked.get("memory", 0), "gpu memory"),
        }
        usual: dict[str, Any] = {"count": 1, "share_milli": 1000, "models": [], "memory_bytes": 0}
        found["devices"] = {name: value for name, value in devices.items() if value != usual[name]}
    if body.get("extended"):
        found["extended"] = dict(sorted(body["extended"].items()))
    if body.get("numa", "any") != "any":
        found["numa"] = body["numa"]
    return found


def _cores(value: int | float | str) -> int:
    if isinstance(value, str):
        return parse_cpu(value, "cpu")
    return round(value * 1000)


def _size(value: int | str, what: str) -> int:
    return value if isinstance(value, int) else parse_bytes(value, what)
