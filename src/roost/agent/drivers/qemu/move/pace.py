"""How fast a move goes: what is told of it, when it is given up, how long a guest may stand still.

A migration that has lost its network stays `active` for ever, as far as QEMU is concerned, and one
whose guest writes faster than the network carries never ends. Both are given up here, by what was
moved and by the clock.
"""

from collections.abc import Callable, Mapping
from typing import Any

from roost.agent.drivers.qemu.command import choose_accel
from roost.agent.drivers.qemu.move.mirror import Copied
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.base.clock import Clock
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import DesiredVM, MoveInfo, ProgressInfo

_REPORT_S = 2.0
_UNLIMITED = 1 << 40  # bytes per second
#: QEMU's own default. Guests that are emulated were seen to break in faster moves on a busy host,
#: by writes that were lost as their memory was copied; see `Pace.downtime_ms`.
_EMULATED = 128 << 20
#: In post-copy most of the memory goes ahead of the guest, in no less than this time.
_AHEAD_S = 2.0
#: The stand-still to aim for begins with this share of what is allowed and doubles with each pass:
#: few guests need more, and those that do get it.
_FIRST_SHARE = 1 / 10


class Pace:
    """The pace of one move."""

    def __init__(
        self,
        clock: Clock,
        settings: QemuSettings,
        vm: DesiredVM,
        progress: Callable[[ProgressInfo], None],
    ) -> None:
        self.passes = 0
        self._clock = clock
        self._settings = settings
        self._vm = vm
        self._move = vm.move or MoveInfo()
        self._progress = progress
        self._begun_at = self._moved_at = clock.monotonic()
        self._moved_bytes = -1
        self._reported_at = float("-inf")

    @property
    def bandwidth(self) -> int:
        """Return the bytes per second that may be sent, 0 without a limit."""
        return self._move.bandwidth_bytes or self._settings.migrate_bandwidth_bytes

    def most_bandwidth(self, post_copy: bool) -> int:
        """Return the limit to give to QEMU, whose own default is far below a fast network."""
        limit = self.bandwidth or (_EMULATED if self._is_emulated else _UNLIMITED)
        return min(limit, int(self._vm.memory_bytes / _AHEAD_S)) if post_copy else limit

    @property
    def _is_emulated(self) -> bool:
        return choose_accel(self._settings.accel) == "tcg"

    def downtime_ms(self) -> int:
        """Return the stand-still to aim for now."""
        most = self._move.downtime_ms or self._settings.migrate_downtime_ms
        if self._is_emulated:
            # Emulated, a guest's writes get lost in passes after the first while it runs (QEMU 7.2
            # on a busy host: 8 of 77 guests broke, none of 134 that stood still for the second).
            return most
        return max(1, min(most, int(most * _FIRST_SHARE * (1 << min(self.passes, 10)))))

    def began_before(self, seconds: float) -> None:
        """Add the time that a move took before this agent adopted it."""
        self._begun_at -= seconds

    def tick(self) -> None:
        """Restart the timer of stalls."""
        self._moved_at = self._clock.monotonic()

    def still_s(self) -> float:
        """Return for how long the move has stalled."""
        return self._clock.monotonic() - self._moved_at

    def note(self, moving: Mapping[str, Any], copied: Copied) -> None:
        """Record the progress of a move, and report it now and then."""
        ram = moving.get("ram", {})
        self.passes = max(self.passes, ram.get("dirty-sync-count", 0))
        now, sent = self._clock.monotonic(), ram.get("transferred", 0) + copied.sent_bytes
        if sent != self._moved_bytes:
            self._moved_bytes, self._moved_at = sent, now
        if now - self._reported_at >= _REPORT_S:
            self._reported_at = now
            self.tell(moving, copied)

    def tell(self, moving: Mapping[str, Any], copied: Copied) -> None:
        """Report the progress of a move."""
        ram = moving.get("ram", {})
        self._progress(
            ProgressInfo(
                sent_bytes=ram.get("transferred", 0) + copied.sent_bytes,
                left_bytes=ram.get("remaining", 0) + copied.left_bytes,
                dirty_bytes_per_s=ram.get("dirty-pages-rate", 0) * ram.get("page-size", 0),
                passes=ram.get("dirty-sync-count", 0),
                throttle_percent=moving.get("cpu-throttle-percentage", 0),
                downtime_ms=moving.get("downtime"),
            )
        )

    def check(self) -> None:
        """Raise `migration_stalled` or `migration_too_slow` when a move is to be given up."""
        name, most_s = self._vm.name, self._settings.migrate_progress_s
        if self.still_s() > most_s:
            text = f"nothing of {name} was sent for {most_s:g} s; it runs on here"
            raise DriverError("permanent", "migration_stalled", text)
        limit_s = self._move.limit_s or self._settings.migrate_limit_s
        if self._clock.monotonic() - self._begun_at > limit_s:
            text = f"{name} was not sent within {limit_s:g} s; it runs on here"
            if self.passes > 1:
                text += f". It changes its memory too fast ({self.passes} passes)"
            raise DriverError("permanent", "migration_too_slow", text)
