"""`roost sim`: worlds of simulated time, one by one or in campaigns."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import InvalidRequest
from roost.cli.loading import new_group
from roost.cli.options import OutputOption, reports_errors
from roost.cli.screen import console, show_document, show_text

if TYPE_CHECKING:
    from roost.sim.campaign import Tally
    from roost.sim.history import History
    from roost.sim.world import Verdict

ActionsOption = Annotated[int, typer.Option(min=1, metavar="N", help="Actions of one world.")]
SecondsOption = Annotated[
    float, typer.Option(min=1, metavar="S", help="Virtual seconds in which they happen.")
]
_KEPT = Path("build") / "chaos"


@reports_errors
def run(
    world: Annotated[
        str, typer.Argument(metavar="SEED|FILE", help="A seed, or a history as JSON or YAML.")
    ],
    actions: ActionsOption = 90,
    seconds: SecondsOption = 150.0,
    tail: Annotated[
        int, typer.Option(min=0, metavar="N", help="Last events to show when a law breaks.")
    ] = 60,
    output: OutputOption = None,
) -> None:
    """Run one world and say whether every law held."""
    _fix_order()
    from roost.sim.world import run_history

    history = _history(world, actions, seconds)
    verdict = run_history(history)
    if output is not None:
        import msgspec

        show_document(msgspec.to_builtins(verdict), output)
    else:
        show_text("\n".join(verdict.tail[-tail:] if tail else []))
        show_text(_sentence(verdict))
    if verdict.broken:
        raise typer.Exit(70)


@reports_errors
def chaos(
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="How many worlds.")] = 100,
    first: Annotated[int, typer.Option(min=0, metavar="SEED", help="The first seed.")] = 0,
    jobs: Annotated[
        int, typer.Option(min=0, metavar="N", help="Processes (0: as there are cores).")
    ] = 0,
    actions: ActionsOption = 90,
    seconds: SecondsOption = 150.0,
    keep: Annotated[
        Path, typer.Option(metavar="DIR", help="Where failing histories are kept.")
    ] = _KEPT,
    output: OutputOption = None,
) -> None:
    """Run many worlds; what fails is shrunk to a short history that can be run again."""
    _fix_order()
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from roost.sim.campaign import run_seeds

    wanted = range(first, first + seeds)
    shown = console(stderr=True)
    columns = TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=shown, disable=not shown.is_terminal) as progress:
        task = progress.add_task("worlds", total=seeds)
        tally = run_seeds(
            wanted,
            jobs=jobs or os.cpu_count() or 1,
            actions=actions,
            seconds=seconds,
            told=lambda verdict: progress.advance(task),
        )
    failed = [_keep(verdict, actions, seconds, keep) for verdict in tally.broken]
    document = _document(tally, failed)
    if output is not None:
        show_document(document, output)
    else:
        show_text(_report(tally, failed))
    if failed:
        raise typer.Exit(70)


sim = new_group(
    "sim", "Run the control plane and agents through simulated faults.",
    {"run": run, "chaos": chaos},
)  # fmt: skip


def _fix_order() -> None:
    """Start again with a fixed hash seed: the order of sets is part of a history."""
    from roost.sim.campaign import fixed_environment, has_fixed_order

    if not has_fixed_order():
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], fixed_environment())


def _history(world: str, actions: int, seconds: float) -> "History":
    from roost.sim.campaign import read_history
    from roost.sim.draws import draw_history

    if world.isdigit():
        return draw_history(int(world), actions=actions, seconds=seconds)
    if not Path(world).exists():
        raise InvalidRequest(f"{world!r} is neither a seed nor a file")
    return read_history(Path(world))


def _sentence(verdict: "Verdict") -> str:
    text = (
        f"seed {verdict.seed}: {verdict.events} events and {verdict.faults} faults in "
        f"{verdict.seconds:.0f} virtual seconds, digest {verdict.digest}"
    )
    return f"{text}\nBROKEN: {verdict.broken}" if verdict.broken else f"{text}; every law held"


def _keep(verdict: "Verdict", actions: int, seconds: float, folder: Path) -> dict[str, object]:
    from roost.sim.campaign import shrunk, write_history
    from roost.sim.draws import draw_history

    history = draw_history(verdict.seed, actions=actions, seconds=seconds)
    short = shrunk(history, verdict.broken)
    path = folder / f"seed-{verdict.seed}.json"
    write_history(path, short)
    return {
        "seed": verdict.seed,
        "broken": verdict.broken,
        "replay": f"roost sim run {verdict.seed} --actions {actions} --seconds {seconds:g}",
        "short": f"roost sim run {path}",
        "history": [str(action) for action in short.actions],
    }


def _document(tally: "Tally", failed: list[dict[str, object]]) -> dict[str, object]:
    return {
        "worlds": tally.worlds,
        "events": tally.events,
        "faults": tally.faults,
        "crashes": tally.crashes,
        "virtual_seconds": round(tally.virtual_s),
        "coverage": dict(sorted(tally.coverage.items())),
        "never": never_fired(tally.coverage),
        "broken": failed,
    }


def never_fired(coverage: dict[str, int]) -> list[str]:
    """Return the kinds of faults that a campaign has not had."""
    from roost.sim.faults import FAULTS

    return [kind for kind in FAULTS if not coverage.get(kind)]


def _report(tally: "Tally", failed: list[dict[str, object]]) -> str:
    lines = [
        f"{tally.worlds} worlds: {tally.events} events, {tally.faults} faults, {tally.crashes} "
        f"crashes, {tally.virtual_s / 3600:.1f} virtual hours",
    ]
    faults = {kind: n for kind, n in sorted(tally.coverage.items()) if kind.startswith("fault.")}
    lines += [f"  {kind.removeprefix('fault.'):24} {n}" for kind, n in faults.items()]
    if never := never_fired(tally.coverage):
        lines.append(f"never: {', '.join(kind.removeprefix('fault.') for kind in never)}")
    for each in failed:
        lines += ["", f"seed {each['seed']} BROKE A LAW: {each['broken']}"]
        lines += [f"  {action}" for action in each["history"]]  # type: ignore[attr-defined]
        lines += [f"replay it:  {each['replay']}", f"shortened:  {each['short']}"]
    if not failed:
        lines.append("every law held in every world")
    return "\n".join(lines)
