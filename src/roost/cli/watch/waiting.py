"""`--wait`: stay until a VM is where it was sent, with a line of progress for every change."""

import asyncio
from typing import TYPE_CHECKING

from roost.base.errors import Unavailable
from roost.cli.show.screen import note
from roost.cli.watch.following import follow
from roost.cli.words.session import Session

if TYPE_CHECKING:
    from roost.wire.bodies import DrainBody, VMBody


def wait_for_vm(session: Session, vm: "VMBody", state: str, timeout_s: float) -> "VMBody":
    """Return the VM when it has reached a state; raise when it failed or time is up.

    `vm` is what the request has answered: what was seen before its generation does not count.
    """
    return asyncio.run(_wait_for_vm(session, vm, state, timeout_s))


async def _wait_for_vm(session: Session, vm: "VMBody", state: str, timeout_s: float) -> "VMBody":
    said = ""
    last = vm

    def seen(body: "VMBody") -> bool:
        nonlocal said, last
        last = body
        where = f" on {body.host}" if body.host else ""
        done = body.observed_generation >= vm.generation and body.state in (state, "failed")
        # How it ends is the command's answer, and not said twice.
        if (line := f"{body.name} is {body.state}{where}") != said and not done:
            said = line
            note(line)
        return done

    async with session.async_client() as client:
        try:
            await follow(client, lambda c: c.get_vm(vm.id), seen, timeout_s=timeout_s)
        except TimeoutError:
            raise Unavailable(
                f"VM {vm.name!r} is still {last.state} after {timeout_s:g} s",
                hint=f"Maybe watch it with `roost vm show {vm.name} --watch`.",
                vm=vm.name,
                state=last.state,
            ) from None
    if last.state == "failed":
        problem = last.problem.message if last.problem is not None else "no reason was given"
        raise Unavailable(
            f"VM {vm.name!r} failed on {last.host}: {problem}", vm=vm.name, state=last.state
        )
    return last


def wait_for_drain(session: Session, host: str, timeout_s: float) -> "DrainBody":
    """Return the drain when the host is empty or nothing moves any more."""
    return asyncio.run(_wait_for_drain(session, host, timeout_s))


async def _wait_for_drain(session: Session, host: str, timeout_s: float) -> "DrainBody":
    said = -1

    def seen(body: "DrainBody") -> bool:
        nonlocal said
        if body.left != said:
            said = body.left
            note(f"{host}: {body.left} left")
        return body.state != "draining"

    async with session.async_client() as client:
        try:
            return await follow(client, lambda c: c.get_drain(host), seen, timeout_s=timeout_s)
        except TimeoutError:
            raise Unavailable(
                f"host {host!r} still has {said} VMs after {timeout_s:g} s",
                hint=f"Maybe look again with `roost host drain {host} --status`.",
                host=host,
            ) from None
