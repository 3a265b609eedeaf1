"""Lists of VMs and hosts shown once: as columns, as names, or as a document."""

import asyncio
import sys
from typing import TYPE_CHECKING

from rich.text import Text

from roost.cli.show import hostlist, vmlist
from roost.cli.show.columns import Listing
from roost.cli.show.screen import Output, show
from roost.cli.watch.following import Fetch, once
from roost.cli.words.session import Session, show_body

if TYPE_CHECKING:
    from roost.wire.bodies import HostPage, VMPage


def list_vms(session: Session, fetch: "Fetch[VMPage]", sort: str, *, headers: bool) -> None:
    """Show VMs once."""
    page = asyncio.run(once(session, fetch))
    if session.names:
        _names([vm.name for vm in page.vms])
    elif session.form is not Output.TABLE:
        show_body(page, session.form)
    elif not page.vms:
        show(Text("no VMs", style="dim"))
    else:
        vmlist.write_vms(page.vms, Listing(session.wide, sort, headers))


def list_hosts(session: Session, fetch: "Fetch[HostPage]", sort: str, *, headers: bool) -> None:
    """Show hosts once."""
    page = asyncio.run(once(session, fetch))
    if session.names:
        _names(sorted(host.name for host in page.hosts))
    elif session.form is not Output.TABLE:
        show_body(page, session.form)
    elif not page.hosts:
        show(Text("no hosts", style="dim"))
    else:
        hostlist.write_hosts(page.hosts, Listing(session.wide, sort, headers))
        if headers:
            show(Text("amounts: committed / capacity", style="dim"))


def _names(names: list[str]) -> None:
    sys.stdout.write("".join(f"{name}\n" for name in names))
    sys.stdout.flush()
