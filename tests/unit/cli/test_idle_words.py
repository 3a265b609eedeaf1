"""Who keeps room without running, as people read it: in their units, with the command."""

from roost.base.units import GIB
from roost.cli.show import sentences
from roost.wire.bodies import IdleBody


def test_a_vm_is_named_with_its_state_its_room_and_the_command() -> None:
    kept = IdleBody(
        host="n03", count=1, cpu_milli=2500, memory_bytes=8 * GIB, disk_bytes=0, vm="web",
        project="shop", state="failed", remedy="roost vm delete web --project shop",
    )  # fmt: skip
    assert sentences.idle(kept) == (
        "web on n03 is failed: 2.5 cores and 8 GiB of memory; "
        "free it with `roost vm delete web --project shop`"
    )


def test_vms_that_are_not_named_are_counted_with_their_sum() -> None:
    kept = IdleBody(host="n03", count=3, cpu_milli=3000, memory_bytes=GIB, disk_bytes=40 * GIB)
    assert sentences.idle(kept) == (
        "3 other VMs on n03, not running: 3 cores and 1 GiB of memory and 40 GiB of disk"
    )
