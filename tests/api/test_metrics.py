"""`GET /metrics` over a real socket."""

import asyncio

from tests.api.serving import serving


def test_a_scrape_says_whether_it_wants_every_host() -> None:
    async def run() -> None:
        async with serving() as running:
            whole = await running.ask("GET", "/metrics", role=None)
            assert whole.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert 'roost_host_up{host="h1"}' in whole.text
            short = await running.ask("GET", "/metrics?hosts=no", role=None)
            assert "roost_hosts{" in short.text
            assert "roost_host_up" not in short.text
            alone = await running.ask("GET", "/metrics?hosts=only", role=None)
            assert 'roost_host_up{host="h1"}' in alone.text
            assert "roost_hosts{" not in alone.text
            for mistaken in ("hosts=some", "host=no"):
                refused = await running.ask("GET", f"/metrics?{mistaken}", role=None)
                assert refused.status_code == 400

    asyncio.run(run())
