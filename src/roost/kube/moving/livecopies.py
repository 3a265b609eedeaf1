"""The copies of the migrations that are under way, by the clock.

`copying` lets time pass for all of them together; this knows what time it is for them, with what
each begins, that the others are to be looked at when one comes or goes, and when it is worth
telling how far one is. A copy that an earlier controller began goes on as if it had never
stopped. It writes nothing: `migrating` does.
"""

from collections.abc import Callable

from roost.base.clock import Clock
from roost.kube.base.moments import moment_ms
from roost.kube.base.objects import Key, Object
from roost.kube.moving.copying import Copying
from roost.kube.moving.migrationrecord import migration_of
from roost.kube.moving.migrationsettings import MigrationSettings
from roost.kube.moving.precopy import Copy, bytes_per_s
from roost.kube.vms.spec import from_object


class LiveCopies:
    """Every copy that was begun and has not been ended."""

    def __init__(
        self, settings: MigrationSettings, clock: Clock, look: Callable[[Key], None]
    ) -> None:
        """Take what is called with each copy whose share of the network has changed."""
        self._settings, self._clock, self._look = settings, clock, look
        rate = bytes_per_s(settings.nic_mbps)
        self._copying: Copying[Key] = Copying(lambda _: rate)
        self._told: dict[Key, tuple[float, float]] = {}  # when, and how far the copy was

    def get(self, key: Key) -> Copy | None:
        """Return a VM's copy as it was last looked at."""
        return self._copying.get(key)

    def follow(self, key: Key, vm: Object) -> Copy:
        """Return a VM's copy as it is now; it begins when it is asked for first."""
        copy = self._copying.get(key) or self._begin(key, vm)
        self._copying.advance(self._now_s)
        if copy.over:
            # What it had of the network is the others' now: they will be done sooner.
            self._look_at_others(key)
        return copy

    def _begin(self, key: Key, vm: Object) -> Copy:
        migration, asked = migration_of(vm), from_object(vm)
        copy = Copy(
            asked.memory_bytes * asked.memory_utilization,
            bytes_per_s(asked.dirty_rate_mbps),
            self._now_s - self._passed_s(migration.get("copyingAt")),
            self._settings.limits,
        )
        self._copying.advance(self._now_s)
        self._copying.begin(key, migration["sourceNode"], migration["targetNode"], copy)
        self._told[key] = self._clock.monotonic(), 0.0
        self._look_at_others(key)
        return copy

    def end(self, key: Key) -> None:
        """Give back a copy's share of the network; one that never began is no error."""
        self._told.pop(key, None)
        if key in self._copying:
            self._copying.advance(self._now_s)
            self._copying.remove(key)
            self._look_at_others(key)

    def _look_at_others(self, key: Key) -> None:
        for other in self._copying:
            if other != key:
                self._look(other)

    # Telling

    def is_due(self, key: Key) -> bool:
        """Say whether a copy has come far enough since it was last told, and long enough ago."""
        copy = self._copying.get(key)
        if copy is None or self._quiet_s(key) > 0:
            return False
        return copy.progress - self._told[key][1] >= self._settings.ramp_share

    def told(self, key: Key) -> None:
        """Count a copy as told of, as far as it is."""
        copy = self._copying.get(key)
        if copy is not None:
            self._told[key] = self._clock.monotonic(), copy.progress

    def due_in_s(self, key: Key) -> float:
        """Return after how long to ask again whether to tell."""
        return max(self._quiet_s(key), self._settings.ramp_s / 4)

    def event_in_s(self) -> float:
        """Return after how long something happens next in any copy; inf when nothing will."""
        return (self._copying.next_event() - self._now_s) / self._settings.speed

    def _quiet_s(self, key: Key) -> float:
        return self._told[key][0] + self._settings.ramp_s - self._clock.monotonic()

    # Time, as copies count it

    @property
    def _now_s(self) -> float:
        return self._clock.monotonic() * self._settings.speed

    def _passed_s(self, since: str | None) -> float:
        if not since:
            return 0.0
        return max(self._clock.wall_ms() - moment_ms(since), 0) / 1000 * self._settings.speed
