"""Commands that do what a fix says, beside answers of a server; a fleet file has none.

Only a command that does exactly that is named: a host that is opened, a VM that is let off its own
hosts or out of a group. What frees room or brings a host back is the operator's to find.
"""

import re
import shlex
from typing import NamedTuple

from roost.model.flow import FixKind
from roost.wire.bodies import FixBody, VMBody

_GROUP = re.compile(r"(?:affinity|anti-affinity|spread) of group (\S+) over (?:host|rack|zone)s")


class Live(NamedTuple):
    """An answer of a server: about a VM that it has, or about one that it is asked for."""

    vm: VMBody | None = None


def remedy(change: FixBody, live: Live) -> str:
    """Return the command that does what a fix says, or nothing if there is none."""
    if change.kind == FixKind.UNCORDON:
        return shlex.join(["roost", "host", "uncordon", change.host])
    if change.kind != FixKind.LIFT_RULE or live.vm is None:
        return ""
    option = _lifting(change.rule, live.vm)
    named = ["roost", "vm", "set", live.vm.name, "--project", live.vm.project]
    return shlex.join([*named, *option]) if option else ""


def _lifting(rule: str, vm: VMBody) -> list[str]:
    if rule.startswith("pinned to "):
        return ["--unpin"]
    if rule.startswith("excludes "):
        return ["--no-exclude"]
    if rule.startswith("zone "):
        return ["--no-zone"]
    if rule.startswith("rack "):
        return ["--no-rack"]
    if rule.startswith("label ") and len(vm.constraints.get("labels", ())) == 1:
        return ["--no-host-label"]
    if rule.startswith("taint ") and "," not in rule and not vm.constraints.get("tolerations"):
        return ["--tolerate", rule.removeprefix("taint ")]
    group = _GROUP.fullmatch(rule)
    name = "" if group is None else group[1].rpartition("/")[2]
    return ["--group", f"{name}-"] if name in vm.groups else []
