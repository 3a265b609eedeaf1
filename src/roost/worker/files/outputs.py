"""Outputs: files that a job left, written to the store that its pool names.

A file is looked up without following links out of the job's folder: what a job points at is not
what it left. Writing one again changes nothing, so a worker that was killed in between begins anew.
"""

from pathlib import Path
from urllib.parse import quote

from roost.wire.workerlink import OutputKept, OutputOrder
from roost.worker.files import urls
from roost.worker.files.inputs import FilesFailed, place


def keep_outputs(
    work: Path, outputs: list[OutputOrder], to: str, *, ended_well: bool
) -> list[OutputKept]:
    """Write every output to the store; what a job that failed did not leave is not missed."""
    kept = []
    for one in outputs:
        path = place(work, one.name, "output_missing")
        if not path.is_file():
            if one.required and ended_well:
                raise FilesFailed("output_missing", f"the job left no file {one.name!r}")
            continue
        if not to:
            raise FilesFailed("output_failed", "no store of outputs is named")
        url = f"{to.rstrip('/')}/{quote(one.name)}"
        try:
            digest = urls.store(path, url)
        except (urls.Missing, urls.Denied) as error:
            raise FilesFailed("output_failed", f"output {one.name}: {error}") from error
        except (urls.Away, OSError) as error:
            raise FilesFailed("output_failed", f"output {one.name}: {error}", again=True) from error
        kept.append(OutputKept(name=one.name, url=url, bytes=path.stat().st_size, digest=digest))
    return kept
