"""What must hold of a ranking after any number of refilings."""

import sys

import numpy as np
import pytest

from roost.fleet.layout import HostArrays
from roost.placement.engine import Engine
from roost.placement.kernels import ranking as filed
from roost.placement.kernels.ranking import Ranking


def small_blocks(patch: pytest.MonkeyPatch) -> None:
    """Give blocks four hosts and runs two blocks; only with the compiler off."""
    for name, module in list(sys.modules.items()):
        if name.startswith("roost.placement.kernels."):
            for constant, value in (("WIDTH", 4), ("RUN", 2)):
                if hasattr(module, constant):
                    patch.setattr(module, constant, value)
    assert (filed.WIDTH, filed.RUN) == (4, 2)


def rankings_are_sound(engine: Engine) -> None:
    """Check every ranking that the engine would walk as it is."""
    rankings, hosts, marks = engine._rankings, engine.fleet.hosts, engine._selectors.marks
    width = hosts.arrays.headroom.shape[1] + marks.shape[1]
    for kind, ranking in rankings._kept.items():
        current = rankings._seen[kind] == engine.fleet.changes.head
        fitting = (len(ranking.place), ranking.runs.shape[2]) == (hosts.row_capacity, width)
        if current and fitting:
            is_sound(ranking, hosts.arrays, marks)


def is_sound(ranking: Ranking, hosts: HostArrays, marks: np.ndarray) -> None:
    """Check that hosts are filed once, in order, and under bounds that cover them."""
    columns = hosts.headroom.shape[1]
    seen: list[int] = []
    blocks: list[int] = []
    for which in range(filed.CLASSES):
        length = int(ranking.meta[filed.M_LENGTHS + which])
        sequence = ranking.sequence[which, :length].tolist()
        blocks += sequence
        entries = []
        for position, block in enumerate(sequence):
            size = int(ranking.bounds[block, filed.B_SIZE])
            assert 0 < size <= filed.WIDTH, ("size of a block", size)
            here = [tuple(entry) for entry in ranking.entries[block, :size].tolist()]
            entries += here
            rows = [row for _, row in here]
            run = ranking.runs[which, filed.FIRST_RUN + position // filed.RUN]
            for bounds in (
                ranking.bounds[block, filed.B_BOUNDS :],
                run,
                ranking.runs[which, 0],
            ):
                assert (hosts.headroom[rows] <= bounds[:columns]).all(), "bounds are too low"
                assert (marks[rows] & ~bounds[columns:] == 0).all(), "bounds lack a mark"
            for key, row in here:
                assert ranking.place[row, : filed.P_STAMP].tolist() == [key, block, which], (
                    "place",
                    row,
                )
        assert entries == sorted(entries), ("order", which)
        seen += [row for _, row in entries]
    assert sorted(seen) == np.flatnonzero(hosts.takes).tolist(), "hosts that take VMs, each once"
    assert ranking.meta[filed.M_HOSTS] == len(seen)
    absent = np.flatnonzero(ranking.place[:, filed.P_BLOCK] == filed.ABSENT)
    assert len(absent) + len(seen) == len(ranking.place)
    free = int(ranking.meta[filed.M_FREE_BLOCKS])
    unused = ranking.sequence[filed.CLASSES, :free].tolist()
    assert sorted(blocks + unused) == list(range(ranking.sequence.shape[1])), "blocks"
