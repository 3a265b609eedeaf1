"""`roost ledger`: what an operator does to the database as a whole."""

from roost.cli.words.loading import new_group
from roost.cli.words.session import Session, asks_server


@asks_server
def finish_upgrade(session: Session) -> None:
    """End what is done for processes of the release before, once none of them runs any more."""
    done = session.client.finish_upgrade()
    session.show(
        done,
        f"stored the specs of {done.specs_stored} VMs, emptied {done.bodies_emptied} old bodies, "
        f"took user data out of {done.events_cleaned} events, sealed that of {done.sealed} VMs",
    )


ledger = new_group(
    "ledger", "Finish an upgrade of the database.", {"finish-upgrade": finish_upgrade}
)
