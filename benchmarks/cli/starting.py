"""How long a first start takes: until a control plane is ready that finds nothing compiled."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

#: A first start that takes longer than this is given up.
MOST_S = 900.0


def first_start() -> float:
    """Return the seconds from the start of `roost serve` until it is ready, with an empty cache."""
    with tempfile.TemporaryDirectory(prefix="roost-first-") as name, socket.socket() as free:
        folder = Path(name)
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        kept = {key: text for key, text in os.environ.items() if not key.startswith("ROOST_")}
        began = time.monotonic()
        process = subprocess.Popen(
            [
                Path(sys.executable).with_name("roost"), "serve", "--listen", address,
                "--data", folder / "data", "--context", folder / "context.json",
                "--log-level", "warning",
            ],
            env=kept | {"ROOST_CACHE": str(folder / "cache")},
        )  # fmt: skip
        try:
            while time.monotonic() - began < MOST_S:
                if _is_ready(f"http://{address}/readyz"):
                    return time.monotonic() - began
                assert process.poll() is None, "the server has ended"
                threading.Event().wait(0.05)
            return MOST_S
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
