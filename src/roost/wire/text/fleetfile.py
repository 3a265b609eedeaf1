r"""The `.fleet` text format: a whole fleet, one statement per line, that a person can type.

    defaults [hosts|vms] WORDS      words for the host (or vm) lines below; a word given there wins
    host NAME WORDS                 `hosts h[1-20] WORDS` registers many
    group NAME RULE [SCOPE] [soft] [max-skew=N] [weight=N]
    vm NAME on HOST WORDS           `vms web-[1-6] on h[1-3] WORDS` deals many out in turn
    hold NAME on HOST WORDS         capacity kept free by a reservation or a move
    used HOST cpu=3.5 memory=20GiB  what was measured

WORDS are key=value (`hostwords`, `requestwords`); quotes, backslashes and `#` work as in `words`.
Statements may come in any order, except that defaults speak of the lines below them. Hosts are
registered in plain name order, whatever their order in the file. A mistake is a `FleetFileError`
with file, line and column; nothing is half read.
"""

from collections.abc import Sequence
from pathlib import Path

from roost.base.errors import FleetFileError, NotFound
from roost.model.description import FleetDescription, PlacedVM, UsedSpec
from roost.wire.text.hostwords import EXTENDED, resource_word, write_amount, write_host
from roost.wire.text.requestwords import write_constraints, write_demand, write_group
from roost.wire.text.statements import Statements
from roost.wire.text.words import Place, cut, escape


def parse(text: str, file: str = "<text>") -> FleetDescription:
    """Return the fleet that this text describes."""
    statements = Statements()
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        words = cut(line.removesuffix("\r"), Place(file, number))
        if words:
            statements.add(words)
    return statements.finish()


def load(path: Path | str) -> FleetDescription:
    """Read a fleet file."""
    return parse(read_text(path), str(path))


def read_text(path: Path | str) -> str:
    """Return a file's text; a file that cannot be read is `NotFound`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise NotFound(f"cannot read {str(path)!r}: {error.strerror}", file=str(path)) from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        raise FleetFileError(
            "this is not UTF-8 text",
            file=str(path),
            line=before.count(b"\n") + 1,
            column=error.start - before.rfind(b"\n"),
        ) from error


def dump(description: FleetDescription) -> str:
    """Write a fleet so that `parse` gives it back; words that all hosts share are defaults."""
    hosts = {
        host.name: write_host(host)
        for host in sorted(description.hosts, key=lambda host: host.name)
    }
    shared = _shared(list(hosts.values()))
    lines = [["defaults", *shared]] if shared else []
    for name, words in hosts.items():
        lines.append(["host", escape(name), *(word for word in words if word not in shared)])
    lines += [["group", *write_group(group)] for group in description.groups]
    lines += [_vm_line(vm) for vm in description.vms]
    for hold in description.holds:
        lines.append(["hold", escape(hold.name), "on", escape(hold.host)])
        lines[-1] += write_demand(hold.demand)
    lines += [_used_line(used) for used in description.used]
    return "".join(f"{' '.join(line)}\n" for line in lines)


def _shared(hosts: Sequence[list[str]]) -> list[str]:
    """Return the words that every one of several hosts has.

    Not those of extended resources: their order counts, and defaults come first.
    """
    if len(hosts) < 2:
        return []
    rest = [frozenset(words) for words in hosts[1:]]
    candidates = [word for word in hosts[0] if not word.startswith(EXTENDED)]
    return [word for word in candidates if all(word in words for words in rest)]


def _vm_line(vm: PlacedVM) -> list[str]:
    words = ["vm", escape(vm.name), "on", escape(vm.host)]
    words += write_demand(vm.demand) + write_constraints(vm.constraints)
    words += [f"group={','.join(map(escape, vm.groups))}"] if vm.groups else []
    words += [f"devices={','.join(map(str, vm.devices))}"] if vm.devices else []
    words += [f"cells={','.join(map(str, vm.cells))}"] if vm.cells else []
    return words


def _used_line(used: UsedSpec) -> list[str]:
    amounts = [f"{resource_word(name)}={write_amount(name, n)}" for name, n in used.amounts]
    return ["used", escape(used.host), *amounts]
