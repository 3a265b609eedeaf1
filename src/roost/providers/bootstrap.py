"""What a rented machine does first: a script for its cloud-init that starts the worker.

It holds where the control plane is, the machine's name and a token that joins once: nothing that
opens an account. The image must have roost; `docs/how-to/providers.md` says how to make one.
"""

from shlex import quote

from roost.model.job import Bootstrap

#: Characters of user data that every provider takes (EC2 takes 16 KiB).
MOST_SCRIPT = 16_384


def start_script(bootstrap: Bootstrap, *, cloud: str) -> str:
    """Return the script that starts the worker of a machine."""
    lines = ["#!/bin/sh", "set -eu", "umask 077"]
    ca = ""
    if bootstrap.ca_pem:
        lines += ["mkdir -p /etc/roost", "cat > /etc/roost/ca.pem <<'ROOST_CA'"]
        lines += [bootstrap.ca_pem.strip(), "ROOST_CA"]
        ca = "ROOST_CA_FILE=/etc/roost/ca.pem "
    lines.append(
        f"{ca}ROOST_JOIN_TOKEN={quote(bootstrap.join_token)} exec roost worker"
        f" --machine {quote(bootstrap.machine)} --server {quote(bootstrap.server)}"
        f" --data /var/lib/roost-worker --cloud {cloud}"
    )
    return "\n".join(lines) + "\n"
