"""One decision called with one array: a directory of where all the others are.

Handing fifty arrays from Python to compiled code costs 15 microseconds, a decision costs less than
one. `Directory` keeps the arrays alive while it points at them.
"""

from typing import Any, NamedTuple

from roost.fleet.groups import GroupArrays
from roost.fleet.layout import HostArrays, Int64Array
from roost.placement.kernels.addresses import (
    ENTRY,
    addresses,
    groups_at,
    hosts_at,
    one,
    short,
    three,
    two,
)
from roost.placement.kernels.compiling import view_maker
from roost.placement.kernels.decide import Batch, Decisions, Scratch, Tables, decide
from roost.placement.kernels.fragments import MixArrays
from roost.placement.kernels.ranking import Ranking
from roost.placement.kernels.running import FORM, running, runs_python


class Bundles(NamedTuple):
    """The arguments of `decide`."""

    hosts: HostArrays
    marks: Int64Array
    groups: GroupArrays
    ranking: Ranking
    tables: Tables
    batch: Batch
    out: Decisions
    options: Int64Array
    mix: MixArrays
    scratch: Scratch


class Directory:
    """Where the arrays of one call are."""

    __slots__ = ("_entries", "bundles")

    def __init__(self, bundles: Bundles) -> None:
        self.bundles = bundles
        arrays: list[Any] = []
        for bundle in bundles:
            arrays += bundle if isinstance(bundle, tuple) else [bundle]
        self._entries = addresses(arrays)

    def decide(self, changed: int) -> int:
        """Run `decide`, with the first `changed` of the batch's changed hosts to be refiled."""
        if FORM.python and runs_python():
            batch = self.bundles.batch
            shorter = batch._replace(changed=batch.changed[:changed])
            return running(decide)(*self.bundles._replace(batch=shorter))
        self._entries[_CHANGED_LENGTH] = changed
        return decide_at(self._entries)


#: Where the directory keeps the length of `Batch.changed`.
_CHANGED = (
    len(HostArrays._fields)
    + 1
    + len(GroupArrays._fields)
    + len(Ranking._fields)
    + len(Tables._fields)
    + Batch._fields.index("changed")
)
_CHANGED_LENGTH = ENTRY * _CHANGED + 1


@view_maker
def decide_at(entries: Int64Array) -> int:
    """Build the bundles from a directory and decide; the order is that of the fields."""
    e = entries
    ranking = Ranking(one(e, 22), two(e, 23), three(e, 24), two(e, 25), two(e, 26), three(e, 27))
    tables = Tables(two(e, 28), one(e, 29), three(e, 30), one(e, 31))
    batch = Batch(two(e, 32), short(e, 33), short(e, 34), one(e, 35), two(e, 36), one(e, 37))
    out = Decisions(
        short(e, 38),
        one(e, 39),
        one(e, 40),
        one(e, 41),
        one(e, 42),
        one(e, 43),
        one(e, 44),
        one(e, 45),
    )
    mix = MixArrays(two(e, 47), one(e, 48), one(e, 49), two(e, 50), three(e, 51), one(e, 52))
    scratch = Scratch(one(e, 53), one(e, 54), one(e, 55), one(e, 56), one(e, 57))
    return decide(
        hosts_at(e, 0),
        two(e, 12),
        groups_at(e, 13),
        ranking,
        tables,
        batch,
        out,
        one(e, 46),
        mix,
        scratch,
    )
