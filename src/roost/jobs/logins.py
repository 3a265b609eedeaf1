"""Logins at private registries: an account's user and password, for one host and no other.

    credentials of an account: registry_user, registry_password, registry (the host)

Whoever submits a job chooses its image, so an account that names no host, or another one, is
refused: its password would be sent to whatever host the image names. Submitting asks, so that the
answer is at once; the assignment asks again, as jobs were queued before and accounts change.
"""

from sqlalchemy import Connection

from roost.base.errors import InvalidRequest
from roost.jobs.catalogue import open_credentials
from roost.model.registries import registry_host, registry_of
from roost.parts.sealing import Seal
from roost.wire.workerlink import RegistryLogin


def login_for(connection: Connection, seal: Seal, account: str, image: str) -> RegistryLogin | None:
    """Return the login of an account for an image; None when it has none, or nothing is pulled."""
    if not account or not image:
        return None
    known = open_credentials(connection, seal, account)
    if not known.get("registry_user"):
        return None
    host, asked = registry_host(known.get("registry", "")), registry_of(image)
    if not host:
        raise InvalidRequest(
            f"account {account!r} has a registry_user and does not say for which host",
            hint="Maybe add registry to its credentials: roost account change --credentials FILE.",
            account=account,
        )
    if asked != host:
        raise InvalidRequest(
            f"the image is of registry {asked!r}; account {account!r} is for {host!r} and its "
            "password goes nowhere else",
            hint="Maybe another account is for that registry, or the image needs none.",
            account=account,
        )
    return RegistryLogin(known["registry_user"], known.get("registry_password", ""), host)
