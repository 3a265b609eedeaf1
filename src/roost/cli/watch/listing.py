"""Lists of VMs and hosts shown once: as columns, as names, or as a document.

A page of 1,000 VMs is read only as far as it is shown: names alone for `-o name`, nothing at all
for `-o json`, which passes on what the API sent.
"""

import sys
from dataclasses import replace
from typing import Any, Unpack

import msgspec

from roost.cli.show.columns import Listing, natural
from roost.cli.show.screen import Output, show_text
from roost.cli.words.selecting import Selector
from roost.cli.words.session import Session, show_body
from roost.client import routes
from roost.client.calls import reads
from roost.client.routes import PAGE, VMFilters
from roost.wire.bodies import HostPage, VMPage


class _Labelled(msgspec.Struct):
    labels: dict[str, str] = {}


class _Named(_Labelled, kw_only=True):
    name: str


class _NamedPage(msgspec.Struct):
    vms: list[_Named]
    next: str | None = None


class _RawPage(msgspec.Struct):
    """A page as it was sent, with its VMs unread."""

    vms: list[msgspec.Raw]
    next: str | None = None


_labels = msgspec.json.Decoder(_Labelled)


def list_vms(
    session: Session,
    chosen: Selector | None,
    limit: int | None,
    listing: Listing,
    **filters: Unpack[VMFilters],
) -> None:
    """Show VMs once."""
    if session.names:
        _names([vm.name for vm in _vms(session, _NamedPage, chosen, limit, filters).vms])
    elif session.form is Output.JSON:
        show_body(_vms(session, _RawPage, chosen, limit, filters), session.form)
    elif session.form is not Output.TABLE:
        show_body(_vms(session, VMPage, chosen, limit, filters), session.form)
    elif found := _vms(session, VMPage, chosen, limit, filters).vms:
        from roost.cli.show import vmlist

        vmlist.write_vms(found, listing)
    else:
        _nothing("VM", chosen)


def _vms(
    session: Session,
    kind: type[Any],
    chosen: Selector | None,
    limit: int | None,
    filters: VMFilters,
) -> Any:
    """Return VMs of all pages as one page of a kind."""
    found: list[Any] = []
    after: str | None = None
    while True:
        wanted = PAGE if limit is None else min(PAGE, limit - len(found))
        call = routes.list_vms(**filters, limit=wanted, after=after)
        page = session.client.send(replace(call, read=reads(kind)))
        found += page.vms if chosen is None else [vm for vm in page.vms if _chosen(chosen, vm)]
        after = page.next
        if after is None or len(found) == limit:
            return kind(vms=found, next=after)


def _chosen(chosen: Selector, vm: Any) -> bool:
    read = _labels.decode(vm) if isinstance(vm, msgspec.Raw) else vm
    return chosen.matches(read.labels)


def list_hosts(session: Session, page: HostPage, chosen: Selector | None, listing: Listing) -> None:
    """Show hosts once."""
    if session.names:
        _names(sorted((host.name for host in page.hosts), key=natural))
    elif session.form is not Output.TABLE:
        show_body(page, session.form)
    elif page.hosts:
        from roost.cli.show import hostlist

        hostlist.write_hosts(page.hosts, listing)
        if listing.headers:
            show_text("amounts: committed / capacity")
    else:
        _nothing("host", chosen)


def _nothing(what: str, chosen: Selector | None) -> None:
    """Say that a list is empty, and by which selector: it may have a typing error."""
    show_text(f"no {what}s" if chosen is None else f"no {what} matches -l {chosen.text!r}")


def _names(names: list[str]) -> None:
    sys.stdout.write("".join(f"{name}\n" for name in names))
    sys.stdout.flush()
