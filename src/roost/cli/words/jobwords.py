"""What users type about jobs: options that submit and kinds share, items, and names to complete."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import InvalidRequest, NotFound
from roost.cli.words.completing import complete_accounts, completed
from roost.cli.words.durations import read_duration

if TYPE_CHECKING:
    from roost.wire.jobs import InputBody

CpuOption = Annotated[str | None, typer.Option("--cpu", metavar="CORES", help="Cores of a job.")]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Memory of a job, with its unit.")
]
DiskOption = Annotated[
    str | None, typer.Option("--disk", metavar="SIZE", help="Disk of a job, with its unit.")
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="Environment variable; repeatable."),
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="FILE=URL[#sha256:HEX]",
        help="File that is there when it starts; repeatable.",
    ),
]
OutputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep", metavar="FILE", help="File that it leaves and that is kept; repeatable."
    ),
]
KeepInOption = Annotated[
    str | None,
    typer.Option(
        "--keep-in",
        metavar="URL",
        help="Store of what is kept, s3: or file: (default: the server's).",
    ),
]
RunLimitOption = Annotated[
    str | None,
    typer.Option("--run-limit", metavar="LENGTH", help="End it after so long (1h by default)."),
]
RegistryOption = Annotated[
    str | None,
    typer.Option(
        metavar="ACCOUNT",
        help="Account whose credentials open the image's registry, the host that they name.",
        autocompletion=complete_accounts,
    ),
]
RetriesOption = Annotated[
    int | None, typer.Option("--retries", metavar="N", min=0, help="Try again after failures.")
]
RestartsOption = Annotated[
    int | None,
    typer.Option(
        "--restarts",
        metavar="N",
        min=0,
        help="Try again after failures of machines (3 by default).",
    ),
]
#: Amounts of a job of which only some were said.
_CPU, _MEMORY = "1", "256MiB"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def complete_jobs(incomplete: str) -> list[str]:
    """Return the ids of arrays that begin so."""
    return completed(lambda client: [a.id for a in client.list_arrays().arrays], incomplete)


def complete_pools(incomplete: str) -> list[str]:
    """Return the names of pools that begin so."""
    return completed(lambda client: [p.name for p in client.list_pools().pools], incomplete)


def complete_kinds(incomplete: str) -> list[str]:
    """Return the names of job kinds that begin so."""
    return completed(lambda client: [k.name for k in client.list_job_kinds().kinds], incomplete)


def pairs(given: list[str] | None, what: str) -> dict[str, str]:
    """Return NAME=VALUE words as a table."""
    found = {}
    for word in given or ():
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{word!r} is no {what}; it looks like NAME=VALUE")
        found[name] = value
    return found


def spec_fields(
    command: list[str] | None,
    image: str | None,
    cpu: str | None,
    memory: str | None,
    disk: str | None,
    env: list[str] | None,
    parameter: list[str] | None,
    input_file: list[str] | None,
    output_file: list[str] | None,
    keep_in: str | None,
    run_limit: str | None,
    queue_limit: str | None,
    retries: int | None,
    restarts: int | None,
    priority: int | None,
    registry_account: str | None,
) -> dict[str, Any]:
    """Return the fields of a job's body that were given."""
    from roost.wire.bodies import DemandBody
    from roost.wire.jobs import OutputBody

    found: dict[str, Any] = {
        "command": command,
        "image": image,
        "environment": pairs(env, "environment variable") or None,
        "parameters": parameters(parameter) or None,
        "inputs": _inputs(input_file),
        "outputs": [OutputBody(name=each) for each in output_file] if output_file else None,
        "outputs_to": keep_in,
        "run_limit_s": None if run_limit is None else read_duration(run_limit),
        "queue_limit_s": None if queue_limit is None else read_duration(queue_limit),
        "retries": retries,
        "restarts": restarts,
        "priority": priority,
        "registry_account": registry_account,
    }
    if cpu is not None or memory is not None or disk is not None:
        found["demand"] = DemandBody(cpu=cpu or _CPU, memory=memory or _MEMORY, disk=disk or 0)
    return {name: value for name, value in found.items() if value is not None}


def _inputs(given: list[str] | None) -> "list[InputBody] | None":
    from roost.wire.jobs import InputBody

    found = []
    for name, place in pairs(given, "input").items():
        url, mark, digest = place.partition("#")
        digest = digest.lower()
        if mark and not _DIGEST.fullmatch(digest):
            raise InvalidRequest(
                f"input {name!r}: {digest[:200]!r} is not a digest; one is written #sha256:HEX, "
                "with 64 digits",
                hint="Maybe the address itself has a #: write it %23.",
            )
        found.append(InputBody(name=name, url=url, digest=digest))
    return found or None


def parameters(given: list[str] | None) -> dict[str, Any]:
    """Return parameters; a value that is JSON is what it says, anything else is a text."""
    import msgspec

    found: dict[str, Any] = {}
    for name, value in pairs(given, "parameter").items():
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found


def read_items(path: Path) -> list[Any]:
    """Return the items of a file: lines of text, or of JSON when it is called .jsonl."""
    import msgspec

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"cannot read items from {str(path)!r}: {error}") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if path.suffix != ".jsonl":
        return list(lines)
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line))
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"{path}:{number} is no JSON: {error}") from error
    return found
