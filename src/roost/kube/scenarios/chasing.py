"""What a run has beside it when its scenario asks for it: metrics, Prometheus and the descheduler.

    pods --> exporter --> Prometheus --> descheduler --> evictions --> webhook --> migrations

All of them are the real programs, on loopback, and end with the run.
"""

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from roost.base.clock import Clock
from roost.base.errors import Unavailable
from roost.kube.base.client import Kube
from roost.kube.metering.app import serving
from roost.kube.metering.exporter import Exporter
from roost.kube.scenarios.descheduler import Descheduler, descheduler, promql, with_context
from roost.kube.scenarios.prometheus import Prometheus, prometheus
from roost.kube.script.descheduling import Descheduling

SCRAPE_S = 0.5
_KNOWN_S = 30.0


@asynccontextmanager
async def exporting(
    kube: Kube, namespace: str, clock: Clock, avoid_pressure: float | None = None
) -> AsyncIterator[str]:
    """Serve the metrics of a namespace; keep the scheduler off pressed nodes when that is asked.

    Yields host and port.
    """
    exporter = Exporter(kube, namespace, clock=clock, avoid_pressure=avoid_pressure)
    async with serving(exporter, clock=clock, changes=False) as served:
        yield served.url.removeprefix("http://")


@asynccontextmanager
async def chasing(
    kube: Kube,
    kubeconfig: Path,
    context: str | None,
    wanted: Descheduling,
    clock: Clock,
    *,
    namespace: str,
    selector: str,
    nodes: Iterable[str],
    exporter: str,
) -> AsyncIterator[Descheduler]:
    """Run the descheduler on the nodes of a selector, whose names are `nodes`."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-chase-")))
        url = ""
        if wanted.source == "prometheus":
            asked = await stack.enter_async_context(
                prometheus(folder, [exporter], clock, every_s=SCRAPE_S)
            )
            await _until_known(asked, promql(wanted), set(nodes), clock)
            url = asked.url
        if context is not None:
            kubeconfig = with_context(kubeconfig, context, folder / "kubeconfig")
        yield await stack.enter_async_context(
            descheduler(
                kube, kubeconfig, folder, wanted, clock, namespace=namespace, nodes=selector,
                prometheus_url=url,
            )
        )  # fmt: skip


async def _until_known(asked: Prometheus, query: str, wanted: set[str], clock: Clock) -> None:
    """Wait until Prometheus knows the use of every node: the descheduler refuses to guess."""
    deadline = clock.monotonic() + _KNOWN_S
    while True:
        known = {each["metric"].get("instance") for each in await asked.ask(query)}
        if wanted <= known:
            return
        if clock.monotonic() > deadline:
            missing = sorted(wanted - known)
            raise Unavailable(
                f"Prometheus knows nothing of {', '.join(missing[:5])}",
                hint="Maybe the scenario's query leaves them out.",
            )
        await clock.sleep(SCRAPE_S / 2)
