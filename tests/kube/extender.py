"""An HTTP extender of kube-scheduler that only listens.

The scheduler hands it, for each pod, exactly the nodes that passed all of its own filters. It notes
them and refuses every one, so that nothing is ever bound and every pod sees the same cluster.
"""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

REFUSAL = "noted"


class Extender:
    """Notes which nodes each pod was left with, every time the pod was tried."""

    def __init__(self) -> None:
        self.url = ""
        self.passed: dict[str, list[frozenset[str]]] = defaultdict(list)  # by the pod's name

    @property
    def configuration(self) -> dict[str, Any]:
        """Return its entry in KubeSchedulerConfiguration."""
        return {
            "urlPrefix": self.url,
            "filterVerb": "filter",
            "nodeCacheCapable": True,
            "ignorable": False,
            "httpTimeout": "30s",
        }

    async def filter(self, request: web.Request) -> web.Response:
        """Note and refuse."""
        asked = msgspec.json.decode(await request.read())
        names = frozenset(asked["NodeNames"])
        self.passed[asked["Pod"]["metadata"]["name"]].append(names)
        # Unresolvable: taking other pods away is not tried.
        refused = dict.fromkeys(names, REFUSAL)
        return web.json_response({"NodeNames": [], "FailedAndUnresolvableNodes": refused})


@asynccontextmanager
async def listening() -> AsyncIterator[Extender]:
    """Serve an extender on loopback for as long as the block lasts."""
    extender = Extender()
    application = web.Application(client_max_size=64 * 2**20)
    application.router.add_post("/filter", extender.filter)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        extender.url = f"http://{host}:{port}"
        yield extender
    finally:
        await runner.cleanup()
