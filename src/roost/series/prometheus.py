"""A Prometheus, or what speaks like one, as a reader of series: query_range in, columns out.

Each figure has a query in PromQL, in which `$kind` and `$name` are who is asked for; it must give
one series. Roll-ups are asked for as such (`avg_over_time` and the like), so that what is read is
as small as what is wanted. Whatever is wrong with the server is `SeriesUnavailable` after a bounded
time, and an answer is read only as far as it may be large.
"""

import asyncio
import math
import ssl
from collections.abc import Mapping, Sequence
from functools import cache
from string import Template
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import numpy as np

from roost.base.errors import InvalidRequest, SeriesUnavailable
from roost.model.series import ASKED, Columns, Resolution, Subject
from roost.series.columns import NOTHING, merge

#: The most points that a Prometheus gives at once, and bytes of one answer that are read.
MOST_POINTS, MOST_BYTES = 10_000, 16 * 2**20
PATIENCE_S = 20.0
#: What roost's figures are called where somebody has exported them under their own names.
DEFAULT_QUERY = 'roost_${kind}_%s{${kind}="${name}"}'
_STATISTICS = {
    "mean": "avg_over_time((%s)[%ds:%ds])",
    "max": "max_over_time((%s)[%ds:%ds])",
    "p95": "quantile_over_time(0.95, (%s)[%ds:%ds])",
}


class _Result(msgspec.Struct):
    values: list[tuple[float, str]]


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - Prometheus' word
    result: list[_Result]


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


_decode = msgspec.json.Decoder(_Answer).decode


@cache
def _trusted() -> ssl.SSLContext:
    """Load the certificates that this machine trusts, 50 ms of CPU, once for all questions."""
    return httpx.create_ssl_context(trust_env=False)


class PrometheusSeries:
    """Implements `roost.analysis.store.SeriesReader` on a Prometheus."""

    def __init__(
        self, url: str, queries: Mapping[str, str] | None = None, *, step_s: int = 15
    ) -> None:
        parsed = urlsplit(url)
        if parsed.scheme not in ("http", "https") or not parsed.hostname:
            raise InvalidRequest(
                f"{url!r} is no address of a Prometheus", hint="Maybe http://127.0.0.1:9090."
            )
        self._url, self._step_s = url.rstrip("/"), step_s
        self._queries = dict(queries or {})
        for figure in self._queries:
            if figure not in ASKED:
                raise InvalidRequest(
                    f"there is no figure {figure!r}",
                    hint=f"Maybe one of {', '.join(sorted(ASKED))}.",
                )

    async def read(
        self,
        subject: Subject,
        first_ms: int,
        until_ms: int,
        resolution: Resolution = Resolution.RAW,
        figures: Sequence[str] | None = None,
    ) -> Columns:
        """Return a span of one subject's series; without names, every figure that has a query."""
        if until_ms <= first_ms:
            return NOTHING
        parts = []
        async with httpx.AsyncClient(
            timeout=PATIENCE_S, trust_env=False, verify=_trusted()
        ) as client:
            for name in figures if figures is not None else sorted(self._queries):
                figure, _, statistic = name.rpartition(".")
                plain = name if statistic not in _STATISTICS else figure
                query = self._query(plain, subject)
                wanted = [statistic] if plain != name else list(_STATISTICS)
                if resolution is Resolution.RAW:
                    step_ms = 1000 * self._step_s
                    found = await self._range(client, query, first_ms, until_ms, step_ms)
                    parts.append(_columns(name, found, 0))
                    continue
                bucket = resolution.bucket_ms
                # Prometheus looks back from each moment; a bucket is called by where it begins.
                first, until = first_ms - first_ms % bucket + bucket, until_ms + bucket
                for each in wanted:
                    asked = _STATISTICS[each] % (query, bucket // 1000, self._step_s)
                    found = await self._range(client, asked, first, until, bucket)
                    parts.append(_columns(f"{plain}.{each}", found, bucket))
        return merge(parts)

    def _query(self, figure: str, subject: Subject) -> str:
        text = self._queries.get(figure) or DEFAULT_QUERY % figure
        name = subject.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return Template(text).safe_substitute(kind=subject.kind, name=name)

    async def _range(
        self, client: httpx.AsyncClient, query: str, first_ms: int, until_ms: int, step_ms: int
    ) -> dict[int, float]:
        """Return the points of a query, in as many questions as it takes."""
        points: dict[int, float] = {}
        for begin in range(first_ms, until_ms, MOST_POINTS * step_ms):
            end = min(until_ms - 1, begin + (MOST_POINTS - 1) * step_ms)
            answer = await self._ask(
                client,
                {
                    "query": query,
                    "start": f"{begin / 1000:.3f}",
                    "end": f"{end / 1000:.3f}",
                    "step": f"{step_ms / 1000:g}",
                },
            )
            if len(answer) > 1:
                raise SeriesUnavailable(
                    f"{query!r} gives {len(answer)} series, and one is meant",
                    hint="Maybe sum or narrow them in the query.",
                )
            for result in answer:
                for at_s, text in result.values:
                    value = _number(text)
                    if math.isfinite(value) and value >= 0:
                        points[round(at_s * 1000)] = value
        return points

    async def _ask(self, client: httpx.AsyncClient, asked: dict[str, str]) -> list[_Result]:
        where = f"{self._url}/api/v1/query_range"
        try:
            # The client's own timeout is of each read: what trickles would never pass it.
            async with (
                asyncio.timeout(PATIENCE_S),
                client.stream("POST", where, data=asked) as response,
            ):
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise SeriesUnavailable(f"{self._url} answers with more than 16 MiB")
            answer = _decode(bytes(body))
        except TimeoutError as error:
            raise SeriesUnavailable(
                f"{self._url} does not answer within {PATIENCE_S:g} s"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = str(error) or type(error).__name__
            raise SeriesUnavailable(f"{self._url} does not answer: {said}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SeriesUnavailable(
                f"{self._url} answers {response.status_code}, and not as a Prometheus does"
            ) from error
        if answer.status != "success" or answer.data is None:
            raise SeriesUnavailable(f"{self._url} refuses {asked['query']!r}: {answer.error[:500]}")
        return answer.data.result


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _columns(name: str, points: Mapping[int, float], back_ms: int) -> Columns:
    at_ms = np.array(sorted(points), dtype=np.int64)
    values = np.array([points[int(at)] for at in at_ms], dtype=np.float64)
    return Columns(at_ms - back_ms, {name: values})


def read_queries(text: str, where: str) -> dict[str, str]:
    """Return the queries of a TOML file: a figure's name and its PromQL on each line."""
    import tomllib

    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{where}: {error}") from error
    for figure, query in found.items():
        if not isinstance(query, str):
            raise InvalidRequest(f"{where}: the query of {figure} is {query!r}, which is no text")
    return found
