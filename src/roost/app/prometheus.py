"""Series from a Prometheus, for the server that is told of one and for imports."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from roost.base.errors import InvalidRequest
from roost.model.series import Columns, Subject
from roost.series.prometheus import PrometheusSeries, read_queries


def prometheus_reader(url: str, queries: Path | None, *, step_s: int = 15) -> PrometheusSeries:
    """Return the reader of a Prometheus; its queries are in a TOML file, by figure."""
    found: Mapping[str, str] = {}
    if queries is not None:
        try:
            found = read_queries(queries.read_text(), str(queries))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"cannot read {str(queries)!r}: {error}") from error
    return PrometheusSeries(url, found, step_s=step_s)


def read_prometheus(
    url: str,
    queries: Mapping[str, str],
    subject: Subject,
    first_ms: int,
    until_ms: int,
    *,
    step_s: int,
) -> Columns:
    """Return what a Prometheus has of one VM or host in a span, by the queries of figures."""
    reader = PrometheusSeries(url, queries, step_s=step_s)
    return asyncio.run(reader.read(subject, first_ms, until_ms))
