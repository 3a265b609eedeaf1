"""Make the kernels of a control plane ready without letting anybody wait for the compiler.

    compiled before      loaded in a thread                                        a second
    nothing compiled     kernels run as Python and the plane is ready at once; another
                         process compiles; a thread loads what it made; then all change over
    ... in a large fleet the plane waits for that process: filing so many hosts as Python would
                         keep the loop from its turns for seconds

Compiling holds Python's lock for seconds at a time: agents would be unheard and requests unanswered
meanwhile. Loading what is compiled does not.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from roost.app.warming import can_keep, compile_elsewhere, is_warm, warm_up
from roost.base.backoff import BackOff
from roost.base.clock import Clock
from roost.placement.kernels.compiling import on_first_compile
from roost.placement.kernels.running import compiled_here, interpret

log = logging.getLogger("roost.serve")

#: Hosts from which on a plane waits for compiled kernels: filing 2,000 as Python takes 0.2 s.
MOST_INTERPRETED = 2_000
#: How long to wait before a compile that failed (too little memory, a full disk) is tried again.
_AGAIN = BackOff(30.0, 900.0)


class GettingReady:
    """Makes kernels ready, and goes on compiling after the plane is."""

    def __init__(self, clock: Clock, hosts: Callable[[], int]) -> None:
        self._clock, self._hosts = clock, hosts
        self._compiling: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Return when decisions can be made, by compiled code or without it."""
        if is_warm():
            await in_background(_load)
        elif self._hosts() > MOST_INTERPRETED:
            log.info(
                "compiling kernels in another process, about five minutes, and waiting for it: "
                "the fleet is too large to do without (`roost warm` does it beforehand) ..."
            )
            await compile_elsewhere()
            await in_background(_load)
        else:
            log.info(
                "compiling kernels in another process (once for each version and user, about "
                "five minutes; `roost warm` does it beforehand); until then they run as Python: "
                "the same answers, about a millisecond each"
            )
            interpret(True)
            self._compiling = asyncio.create_task(self._compile())

    async def _compile(self) -> None:
        """Compile elsewhere until that has worked, load what was made, and change over."""
        began, attempt = self._clock.monotonic(), 0
        while not await self._made_ready():
            wait_s = _AGAIN.wait_s(attempt)
            log.warning("kernels could not be compiled; tried again in %.0f s", wait_s)
            await self._clock.sleep(wait_s)
            attempt += 1
        interpret(False)
        log.info("kernels are compiled and in use, %.0f s later", self._clock.monotonic() - began)

    @staticmethod
    async def _made_ready() -> bool:
        """Compile elsewhere and load what was made; say whether that has worked."""
        try:
            # Without a folder to keep it nothing that another process compiles can be had.
            if can_keep():
                await compile_elsewhere()
                if not is_warm():
                    return False
            await in_background(_load)
        except Exception:  # whatever it is, somebody must hear of it, and it may work later
            log.exception("making kernels ready failed")
            return False
        return True

    async def stop(self) -> None:
        """End what still compiles."""
        if self._compiling is not None:
            self._compiling.cancel()
            await asyncio.gather(self._compiling, return_exceptions=True)
            interpret(False)


def _load() -> None:
    on_first_compile(lambda: log.info("compiling kernels ..."))
    with compiled_here():
        warm_up()


async def in_background(work: Callable[[], None]) -> None:
    """Run something in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:  # noqa: BLE001 - handed to whoever waits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop may be gone by now
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, name="roost-warm-up", daemon=True).start()
    await done
