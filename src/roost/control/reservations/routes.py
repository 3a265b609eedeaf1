"""Reservations over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, OPERATOR, VIEWER
from roost.parts.routes import CHANGING, Route
from roost.wire import reservations as w

if TYPE_CHECKING:
    from roost.control.reservations.reservations import Reservations


# fmt: off
def reservation_routes(parts: "Reservations") -> tuple[Route, ...]:
    """Return the routes of reservations."""
    return (
        Route(method="GET", path="/api/v1/reservations", noun="reservations", verb="list",
              call=lambda call: parts.list(call.query, call.who), roles=VIEWER | MEMBER,
              summary="List reservations", query=w.ListReservations, reply=w.ReservationPage),
        Route(method="POST", path="/api/v1/reservations", noun="reservations", verb="create",
              call=lambda call: parts.create(call.body, call.who, call.key), roles=OPERATOR,
              summary="Reserve capacity", body=w.CreateReservation, reply=w.ReservationDetail,
              statuses=(201,), errors=("conflict", "not_found", "invalid_rule"), keyed=True,
              makes=("reservation", "name")),
        Route(method="GET", path="/api/v1/reservations:calendar", noun="reservations",
              verb="calendar", call=lambda call: parts.calendar(call.query, call.who),
              roles=VIEWER | MEMBER, summary="List the windows of reservations as they begin",
              query=w.AskCalendar, reply=w.CalendarBody),
        Route(method="GET", path="/api/v1/reservations/{reservation}", noun="reservations",
              verb="get", call=lambda call: parts.get(call.path["reservation"], call.who),
              roles=VIEWER | MEMBER, summary="Show a reservation, its units and its windows",
              reply=w.ReservationDetail),
        Route(method="POST", path="/api/v1/reservations/{reservation}/change",
              noun="reservations", verb="change",
              call=lambda call: parts.change(call.path["reservation"], call.body, call.who),
              roles=OPERATOR, summary="Change a reservation", body=w.ChangeReservation,
              reply=w.ReservationDetail, errors=CHANGING),
        Route(method="DELETE", path="/api/v1/reservations/{reservation}", noun="reservations",
              verb="delete", call=lambda call: parts.delete(call.path["reservation"], call.who),
              roles=OPERATOR, summary="Delete a reservation; its VMs run on", statuses=(204,),
              errors=CHANGING),
    )
# fmt: on
