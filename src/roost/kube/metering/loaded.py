"""A scenario as the exporter takes it in: a name, VMs, and the nodes it was written for.

What happens in time (steps, generators, the descheduler) is played by `roost kube scenario run`;
the exporter only brings the VMs of the beginning to life.
"""

from typing import NamedTuple

import msgspec

from roost.base.errors import InvalidRequest
from roost.kube.base.objects import Object
from roost.kube.metering.legacy import is_legacy, read_legacy
from roost.kube.script.scenario import (
    Scenario,
    all_vms,
    find_scenario,
    parse_scenario,
    read_scenario,
)
from roost.kube.vms.spec import VM


class Loaded(NamedTuple):
    """What is to be loaded."""

    name: str
    vms: list[VM]
    nodes: list[Object]  # empty: those that are there


def read_body(body: bytes, name: str | None, namespace: str) -> Loaded:
    """Return the scenario of a request: a document in either form, or the name of a shipped one."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the scenario is not UTF-8 text: {error}") from error
    if not text.strip():
        if name is None:
            raise InvalidRequest(
                "there is no scenario in the body",
                hint="Maybe send a scenario file, or name a shipped one with ?name=light.",
            )
        return _of(name, read_scenario(find_scenario(name)), namespace)
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        document = None  # YAML, then
    if is_legacy(document):
        return Loaded(*read_legacy(document, name, namespace))
    return _of(name or "scenario", parse_scenario(text, "<body>"), namespace)


def _of(name: str, scenario: Scenario, namespace: str) -> Loaded:
    nodes = [node for pool in scenario.nodes for node in pool.nodes()]
    return Loaded(name, all_vms(scenario.vms, scenario.seed, namespace), nodes)
