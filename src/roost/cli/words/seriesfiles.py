"""Series in files: CSV, and Parquet where pyarrow is installed.

One row for each moment of a VM or host: `kind`, `name`, `at_ms`, then a column for each figure. An
empty cell is unknown. For a Prometheus they are written as OpenMetrics, by the names under which
roost reads them there unless it is told otherwise.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from roost.base.errors import InvalidRequest

_KEYS = ("kind", "name", "at_ms")
#: How a file's name ends that `promtool tsdb create-blocks-from openmetrics` takes.
_OPENMETRICS = ".openmetrics"


@dataclass(slots=True)
class Part:
    """Some readings of one VM or host, in columns."""

    kind: Literal["vm", "host"]
    name: str
    at_ms: list[int] = field(default_factory=list)
    figures: dict[str, list[float | None]] = field(default_factory=dict)


def read_parts(path: Path, most: int) -> Iterator[Part]:
    """Yield the readings of a file, so many moments of one VM or host at a time."""
    if path.suffix == _OPENMETRICS:
        raise InvalidRequest(
            f"{path}: files of this kind are only written",
            hint="Maybe export a .csv file, or import from the Prometheus itself.",
        )
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path)
    part: Part | None = None
    for line, row in rows:
        kind, name, at_ms = (row.pop(key, None) for key in _KEYS)
        if kind not in ("vm", "host") or not name:
            raise InvalidRequest(f"{path}: row {line} is of {kind!r} {name!r}, not of a vm or host")
        if part is None or (part.kind, part.name) != (kind, name) or len(part.at_ms) >= most:
            if part is not None:
                yield part
            part = Part(kind, str(name), [], {figure: [] for figure in row})
        try:
            part.at_ms.append(int(at_ms))
            for figure, value in row.items():
                part.figures[figure].append(None if value in (None, "") else float(value))
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise InvalidRequest(f"{path}: row {line} cannot be read: {error}") from error
    if part is not None:
        yield part


def count_moments(path: Path) -> int | None:
    """Return how many rows a file has, about; None where `read_parts` will say what is wrong."""
    if not path.is_file():  # what can be read once alone is left for that
        return None
    try:
        if path.suffix != ".parquet":
            with path.open("rb") as file:
                lines = sum(piece.count(b"\n") for piece in iter(lambda: file.read(2**20), b""))
            return max(0, lines - 1)
        arrow, parquet = _parquet()
        try:
            return int(parquet.read_metadata(path).num_rows)
        except arrow.ArrowException:
            return None
    except OSError:
        return None


def _csv_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, restkey="")
            if missing := [key for key in _KEYS if key not in (reader.fieldnames or ())]:
                raise InvalidRequest(
                    f"{path} has no column {missing[0]!r}",
                    hint=f"Maybe its first line should be {','.join(_KEYS)},cpu_milli,...",
                )
            for row in reader:
                if "" in row:
                    raise InvalidRequest(f"{path}: row {reader.line_num} has too many cells")
                yield reader.line_num, row
    except OSError as error:
        raise InvalidRequest(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequest(f"{path} is no CSV file: {error}") from error


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    arrow, parquet = _parquet()
    try:
        with parquet.ParquetFile(path) as file:
            if missing := [key for key in _KEYS if key not in file.schema_arrow.names]:
                raise InvalidRequest(f"{path} has no column {missing[0]!r}")
            line = 0
            for batch in file.iter_batches(batch_size=10_000):
                for row in batch.to_pylist():
                    line += 1
                    yield line, row
    except (OSError, arrow.ArrowException) as error:
        raise InvalidRequest(f"cannot read {str(path)!r}: {error}") from error


def write_parts(path: Path, parts: Iterable[Part]) -> int:
    """Write readings to a file, as its name ends; return how many moments there are."""
    found = [part for part in parts if part.at_ms]
    names = sorted({figure for part in found for figure in part.figures})
    count = sum(len(part.at_ms) for part in found)
    try:
        if path.suffix == ".parquet":
            _write_parquet(path, found, names)
        elif path.suffix == _OPENMETRICS:
            _write_openmetrics(path, found, names)
        else:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow((*_KEYS, *names))
                for part in found:
                    empty: list[float | None] = [None] * len(part.at_ms)
                    columns = [part.figures.get(name, empty) for name in names]
                    for place, at_ms in enumerate(part.at_ms):
                        cells = (_cell(column[place]) for column in columns)
                        writer.writerow((part.kind, part.name, at_ms, *cells))
    except OSError as error:
        raise InvalidRequest(f"cannot write {str(path)!r}: {error.strerror}") from error
    return count


def _write_openmetrics(path: Path, parts: list[Part], names: list[str]) -> None:
    """Write a family for each kind and figure; all samples of one stand together, as they must."""
    with path.open("w", encoding="utf-8") as file:
        for kind in sorted({part.kind for part in parts}):
            own = [part for part in parts if part.kind == kind]
            for name in names:
                # Roll-ups are called `cpu_milli.mean`, which no metric can be.
                family = f"roost_{kind}_{name.replace('.', '_')}"
                file.write(f"# TYPE {family} unknown\n")
                for part in own:
                    labels = f'{{{kind}="{_escaped(part.name)}"}}'
                    for at_ms, value in zip(part.at_ms, part.figures.get(name, ()), strict=False):
                        if value is not None:
                            second, rest = divmod(at_ms, 1000)
                            file.write(f"{family}{labels} {_cell(value)} {second}.{rest:03}\n")
        file.write("# EOF\n")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _write_parquet(path: Path, parts: list[Part], names: list[str]) -> None:
    arrow, parquet = _parquet()
    columns: dict[str, Any] = {
        "kind": [part.kind for part in parts for _ in part.at_ms],
        "name": [part.name for part in parts for _ in part.at_ms],
        "at_ms": [at for part in parts for at in part.at_ms],
    }
    for name in names:
        columns[name] = arrow.array(
            [v for part in parts for v in part.figures.get(name, [None] * len(part.at_ms))],
            arrow.float64(),
        )
    parquet.write_table(arrow.table(columns), path, compression="zstd")


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidRequest(
            "Parquet files need pyarrow, which is not installed",
            hint="Maybe pip install 'roost[tables]', or use a .csv file.",
        ) from error
    return pyarrow, pyarrow.parquet
