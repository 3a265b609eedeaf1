"""Where a VM is, by what hosts say after an old ledger was restored: one table, all cases."""

import pytest

from roost.control.survive.restore_apply import Copy, Finding
from roost.control.survive.restore_judge import judge
from roost.ledger.schema.rows import VMRow

A, B, C = 1, 2, 3


def row(**given: object) -> VMRow:
    plain: dict[str, object] = {
        "id": "vm-1", "project": "default", "name": "web", "labels": "",
        "cpu_milli": 1000, "memory_bytes": 1, "disk_bytes": 0, "strategy": "first_fit",
        "priority": 0, "on_no_fit": "fail", "restart": "elsewhere", "desired": "running",
        "generation": 4, "restarts": 0, "host": A, "target": None, "phase": "",
        "observed": "running", "observed_generation": 4, "problem": None, "pending": None,
        "created_ms": 0, "move": None,
    }  # fmt: skip
    return VMRow(**{**plain, **given})  # type: ignore[arg-type]


#: name -> VM, what hosts say, what is known before all are heard, and what then.
CASES: dict[str, tuple[VMRow, list[Copy], Finding | None, Finding | None]] = {
    "it runs at home": (row(), [Copy(A, 4, "running")], Finding(A), Finding(A)),
    "it runs elsewhere": (
        row(), [Copy(A, 4, "stopped"), Copy(B, 9, "running")], Finding(B), Finding(B),
    ),
    "it runs elsewhere, older than what lies at home": (
        row(), [Copy(A, 12, "stopped"), Copy(B, 9, "running")], Finding(B), Finding(B),
    ),
    "two say that it runs: one word is old": (
        row(), [Copy(A, 4, "running"), Copy(B, 9, "running")], None, None,
    ),
    "it is leaving": (row(), [Copy(A, 6, "leaving"), Copy(B, 5, "ready")], None, None),
    "it has left and not arrived": (
        row(), [Copy(A, 6, "moved"), Copy(B, 5, "ready")], None, Finding(A, boots=True, asks=B),
    ),
    "it has left twice and not arrived": (
        row(), [Copy(A, 6, "moved"), Copy(B, 9, "moved"), Copy(C, 9, "ready")],
        None, Finding(B, boots=True, asks=C),
    ),
    "it has left, and two wait for it": (
        row(), [Copy(A, 6, "moved"), Copy(B, 5, "ready"), Copy(C, 7, "ready")], None, None,
    ),
    "it has left, runs, and somebody waits": (
        row(), [Copy(A, 6, "moved"), Copy(B, 7, "running"), Copy(C, 7, "ready")], None, None,
    ),
    "it has left, not arrived, and was being deleted": (
        row(desired="absent"), [Copy(A, 6, "moved"), Copy(B, 5, "ready")], None, Finding(A),
    ),
    "it has left and is lost": (
        row(), [Copy(A, 6, "moved"), Copy(B, 5, "lost")], None, Finding(A, boots=True),
    ),
    "a driver cannot tell": (row(), [Copy(A, 4, "running"), Copy(B, 4, "unclear")], None, None),
    "it lies at home": (row(), [Copy(A, 4, "stopped")], None, Finding(A)),
    "it lies at home and cannot have left": (
        row(restart="here"), [Copy(A, 4, "stopped")], Finding(A), Finding(A),
    ),
    "it lies in two places": (
        row(), [Copy(A, 4, "stopped"), Copy(B, 9, "stopped"), Copy(C, 7, "gone")],
        None, Finding(B),
    ),
    "as old in two places": (
        row(host=B), [Copy(A, 4, "stopped"), Copy(B, 4, "stopped")], None, Finding(B),
    ),
    "a copy waits for a move that nobody makes": (
        row(), [Copy(A, 4, "running"), Copy(B, 5, "ready")], Finding(A), Finding(A),
    ),
    "it was destroyed since": (row(), [Copy(A, 8, "gone")], None, Finding(None, gone=True)),
    "it was being deleted, and is": (
        row(desired="absent"), [Copy(A, 8, "gone")], None, Finding(A, gone=True),
    ),
    "an earlier host destroyed it long ago": (row(), [Copy(B, 3, "gone")], None, Finding(A)),
    "nobody has heard of it": (row(), [], None, Finding(A)),
    "it waits, and nobody has heard of it": (row(host=None), [], None, Finding(None)),
    "it waits, and runs": (row(host=None), [Copy(B, 5, "running")], Finding(B), Finding(B)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_vm_is_where_hosts_say_when(name: str) -> None:
    vm, said, early, late = CASES[name]
    assert judge(vm, said, all_heard=False) == early
    assert judge(vm, said, all_heard=True) == late
