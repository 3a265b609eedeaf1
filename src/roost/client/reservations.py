"""Reservations in both clients: their calls and methods."""

from roost.client.binding import Method
from roost.client.calls import API, Call, nothing, path, query, reads
from roost.wire import reservations as wire

_read_one = reads(wire.ReservationDetail)


def list_reservations(
    *,
    owner: str | None = None,
    host: str | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Call[wire.ReservationPage]:
    """Return one page of reservations."""
    asked = query(owner=owner, host=host, limit=limit, after=after)
    return Call("GET", path("reservations"), reads(wire.ReservationPage), asked)


def get_reservation(name: str) -> Call[wire.ReservationDetail]:
    """Return a reservation with its units and windows."""
    return Call("GET", path("reservations", name), _read_one)


def create_reservation(
    reservation: wire.CreateReservation, *, key: str | None = None
) -> Call[wire.ReservationDetail]:
    """Reserve capacity; it is kept from the answer on."""
    return Call("POST", path("reservations"), _read_one, body=reservation, creates=True, key=key)


def change_reservation(name: str, change: wire.ChangeReservation) -> Call[wire.ReservationDetail]:
    """Change a reservation; what the change leaves out stays."""
    return Call("POST", path("reservations", name, "change"), _read_one, body=change)


def delete_reservation(name: str) -> Call[None]:
    """Delete a reservation; VMs that draw on it run on."""
    return Call("DELETE", path("reservations", name), nothing)


def reservation_calendar(
    *,
    start: str | None = None,
    end: str | None = None,
    host: str | None = None,
    limit: int = 1000,
    after: str | None = None,
) -> Call[wire.CalendarBody]:
    """Return one page of the windows of reservations, in the order in which they begin."""
    asked = query(start=start, end=end, host=host, limit=limit, after=after)
    return Call("GET", f"{API}/reservations:calendar", reads(wire.CalendarBody), asked)


class ReservationMethods:
    """What clients do with reservations."""

    list_reservations = Method(list_reservations)
    get_reservation = Method(get_reservation)
    create_reservation = Method(create_reservation)
    change_reservation = Method(change_reservation)
    delete_reservation = Method(delete_reservation)
    reservation_calendar = Method(reservation_calendar)
