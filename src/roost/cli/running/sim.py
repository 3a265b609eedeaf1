"""`roost sim`: worlds of simulated time, one by one or in campaigns."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import InvalidRequest
from roost.cli.show.screen import Output, console, show_document, show_text
from roost.cli.words.loading import new_group
from roost.cli.words.options import OutputOption, reports_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from roost.sim.campaign.running import Ran, Tally, Task
    from roost.sim.histories.history import History
    from roost.sim.world import Verdict

ActionsOption = Annotated[int, typer.Option(min=1, metavar="N", help="Actions of one drawn world.")]
SecondsOption = Annotated[
    float, typer.Option(min=1, metavar="S", help="Virtual seconds in which they happen.")
]
_KEPT = Path("build") / "chaos"
#: Without a terminal, progress is a line every so many seconds.
_LINE_S = 10.0


@reports_errors
def run(
    world: Annotated[
        str,
        typer.Argument(
            metavar="SEED|FILE|SCENARIO",
            help="A seed, a history or scenario as JSON or YAML, or the name of a scenario.",
        ),
    ],
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Seed of a scenario (else 0) or of a history."),
    ] = None,
    actions: ActionsOption = 90,
    seconds: SecondsOption = 150.0,
    tail: Annotated[
        int, typer.Option(min=0, metavar="N", help="Last events to show when a law breaks.")
    ] = 60,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the history to a file, to edit it.")
    ] = None,
    sites: Annotated[bool, typer.Option("--sites", help="Show which faults struck where.")] = False,
    output: OutputOption = None,
) -> None:
    """Run one world and say whether every law held."""
    _fix_order()
    from roost.sim.campaign.running import write_history
    from roost.sim.world import run_history

    history = _history(world, seed, actions, seconds)
    if save is not None:
        write_history(save, history)
    verdict = run_history(history)
    if output is not None:
        import msgspec

        show_document(msgspec.to_builtins(verdict), output)
    else:
        if verdict.broken and tail:
            show_text("\n".join(verdict.tail[-tail:]))
        if sites:
            show_text("\n".join(_site_lines(verdict.coverage)))
        show_text(_sentence(verdict))
    if verdict.broken:
        raise typer.Exit(70)


@reports_errors
def chaos(
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many worlds, or worlds of each scenario.")
    ] = 100,
    first: Annotated[int, typer.Option(min=0, metavar="SEED", help="The first seed.")] = 0,
    more: Annotated[
        int,
        typer.Option(min=0, max=100_000, metavar="N", help="Further worlds, drawn from --from."),
    ] = 0,
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="TEXT", help="What the seeds of --more are drawn from: a commit's id."
        ),
    ] = "",
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Run this scenario instead of drawn worlds; repeat it for several; `all` are all "
            "shipped ones that take seconds.",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=0, metavar="N", help="Processes (0: as there are cores).")
    ] = 0,
    actions: ActionsOption = 90,
    seconds: SecondsOption = 150.0,
    keep: Annotated[
        Path, typer.Option(metavar="DIR", help="Where failing histories are kept.")
    ] = _KEPT,
    sites: Annotated[bool, typer.Option("--sites", help="Show which faults struck where.")] = False,
    output: OutputOption = None,
) -> None:
    """Run many worlds; what fails is shrunk to a short history that can be run again."""
    _fix_order()
    from roost.sim.campaign.running import Task, drawn_seeds, run_tasks

    files = _scenario_files(scenario or [])
    wanted = [*range(first, first + seeds), *(drawn := drawn_seeds(from_, more))]
    if drawn:
        numbers = " ".join(map(str, drawn))
        typer.echo(f"{more} worlds drawn from {from_!r}: {numbers}", err=True)
    if files:
        tasks = [Task(seed, str(file)) for seed in wanted for file in files]
    else:
        tasks = [Task(seed, actions=actions, seconds=seconds) for seed in wanted]
    tally = _with_progress(
        len(tasks),
        lambda told: run_tasks(tasks, jobs=jobs or os.cpu_count() or 1, told=told),
    )
    failed = [_keep(ran, keep) for ran in tally.broken]
    document = _document(tally, failed)
    if output is not None:
        show_document(document, output)
    else:
        show_text(_report(tally, failed, sites=sites))
    if failed:
        raise typer.Exit(70)


@reports_errors
def scenarios(output: OutputOption = None) -> None:
    """List the scenarios that come with roost."""
    from roost.sim.histories.scenarios import read_scenario, shipped

    found = {name: read_scenario(path) for name, path in shipped().items()}
    if output not in (None, Output.TABLE):
        listed = [{"name": name, "about": each.about} for name, each in found.items()]
        show_document({"scenarios": listed}, output)
        return
    wide = max(len(name) for name in found)
    show_text("\n".join(f"{name:{wide}}  {each.about}" for name, each in found.items()))


sim = new_group(
    "sim", "Run the control plane and agents through simulated faults.",
    {"run": run, "chaos": chaos, "scenarios": scenarios},
)  # fmt: skip


def _fix_order() -> None:
    """Start again with a fixed hash seed: the order of sets is part of a history."""
    from roost.sim.campaign.running import fixed_environment, has_fixed_order

    if not has_fixed_order():
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], fixed_environment())


def _history(world: str, seed: int | None, actions: int, seconds: float) -> "History":
    from roost.sim.campaign.running import read_world
    from roost.sim.histories.draws import draw_history
    from roost.sim.histories.scenarios import shipped

    if world.isdigit():
        if seed is not None:
            raise InvalidRequest(f"{world} is a seed already", hint="Maybe without --seed?")
        return draw_history(int(world), actions=actions, seconds=seconds)
    known = shipped()
    path = known.get(world, Path(world))
    if not path.exists():
        raise InvalidRequest(
            f"{world!r} is neither a seed nor a file nor a scenario; scenarios are "
            f"{', '.join(known)}"
        )
    return read_world(path, seed)


def _scenario_files(names: list[str]) -> list[Path]:
    from roost.sim.histories.scenarios import find_scenario, read_scenario, shipped

    files: list[Path] = []
    for name in names:
        if name == "all":
            files += [path for path in shipped().values() if read_scenario(path).short]
        else:
            files.append(find_scenario(name))
    for path in files:
        read_scenario(path)  # a mistake in it is told here, not by a worker
    return list(dict.fromkeys(files))


# Progress


def _with_progress(total: int, work: "Callable[[Callable[[Tally], None]], Tally]") -> "Tally":
    """Run a campaign and show how far it is: as a bar, or as lines where there is no terminal."""
    shown = console(stderr=True)
    if not shown.is_terminal:
        return work(_lines(total))
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=shown) as progress:
        bar = progress.add_task("worlds", total=total)

        def told(tally: "Tally") -> None:
            described = f"worlds, {len(tally.broken)} broken" if tally.broken else "worlds"
            progress.update(bar, completed=tally.worlds, description=described)

        return work(told)


def _lines(total: int) -> "Callable[[Tally], None]":
    last = [0.0]

    def told(tally: "Tally") -> None:
        if tally.wall_s - last[0] >= _LINE_S:
            last[0] = tally.wall_s
            left = "?"
            if tally.worlds:
                left = f"{tally.wall_s / tally.worlds * (total - tally.worlds):.0f} s"
            typer.echo(
                f"{tally.worlds} of {total} worlds, {tally.events} events, {len(tally.broken)} "
                f"broken; {tally.wall_s:.0f} s, about {left} left",
                err=True,
            )

    return told


# Answers


def _sentence(verdict: "Verdict") -> str:
    text = (
        f"seed {verdict.seed}: {verdict.events} events and {verdict.faults} faults in "
        f"{verdict.seconds:.0f} virtual seconds, digest {verdict.digest}"
    )
    return f"{text}\nBROKEN: {verdict.broken}" if verdict.broken else f"{text}; every law held"


def _keep(ran: "Ran", folder: Path) -> dict[str, object]:
    from roost.sim.campaign.running import shrunk, write_history

    short = shrunk(ran.task.history(), ran.verdict.broken)
    path = folder / f"{ran.task.name}.json"
    write_history(path, short)
    return {
        "seed": ran.task.seed,
        "scenario": ran.task.scenario,
        "name": ran.task.name,
        "broken": ran.verdict.broken,
        "replay": _replay(ran.task),
        "short": f"roost sim run {path}",
        "history": [str(action) for action in short.actions],
    }


def _replay(task: "Task") -> str:
    from roost.sim.histories.scenarios import shipped

    if not task.scenario:
        return f"roost sim run {task.seed} --actions {task.actions} --seconds {task.seconds:g}"
    names = {str(path): name for name, path in shipped().items()}
    return f"roost sim run {names.get(task.scenario, task.scenario)} --seed {task.seed}"


def _document(tally: "Tally", failed: list[dict[str, object]]) -> dict[str, object]:
    return {
        "worlds": tally.worlds,
        "events": tally.events,
        "faults": tally.faults,
        "crashes": tally.crashes,
        "virtual_seconds": round(tally.virtual_s),
        "cpu_seconds": round(tally.cpu_s, 2),
        "wall_seconds": round(tally.wall_s, 2),
        "events_per_cpu_second": round(tally.events / max(tally.cpu_s, 1e-9)),
        "coverage": dict(sorted(tally.coverage.items())),
        "never": never_fired(tally.coverage),
        "broken": failed,
        "scenarios": {
            name: {
                "worlds": each.worlds,
                "events": each.events,
                "faults": each.faults,
                "cpu_seconds": round(each.cpu_s, 2),
                "broken": len(each.broken),
            }
            for name, each in sorted(tally.scenarios.items())
        },
    }


def never_fired(coverage: dict[str, int]) -> list[str]:
    """Return the kinds of faults that a campaign has not had."""
    from roost.sim.faults.kinds import coverage_table

    return coverage_table(coverage).never


def _site_lines(coverage: dict[str, int]) -> list[str]:
    from roost.sim.faults.kinds import coverage_table

    return ["passed and struck, by site:", *coverage_table(coverage).lines()]


def _report(tally: "Tally", failed: list[dict[str, object]], *, sites: bool) -> str:
    from roost.sim.faults.kinds import is_fault

    lines = [
        f"{tally.worlds} worlds: {tally.events} events, {tally.faults} faults, {tally.crashes} "
        f"crashes, {tally.virtual_s / 3600:.1f} virtual hours",
        f"{tally.wall_s:.1f} s, {tally.cpu_s:.1f} s of CPU: {tally.cpu_s / tally.worlds:.2f} s for "
        f"a world, {tally.events / max(tally.cpu_s, 1e-9):.0f} events a second",
    ]
    for name, each in sorted(tally.scenarios.items()):
        lines.append(
            f"  {name:24} {each.worlds} worlds, {each.events} events, {each.faults} faults, "
            f"{each.cpu_s / each.worlds:.1f} s each"
        )
    faults = {k: n for k, n in sorted(tally.coverage.items()) if is_fault(k) and "@" not in k}
    lines += [f"  {kind.removeprefix('fault.'):24} {n}" for kind, n in faults.items()]
    if sites:
        lines += _site_lines(tally.coverage)
    if never := never_fired(tally.coverage):
        lines.append(f"never: {', '.join(kind.removeprefix('fault.') for kind in never)}")
    for each_failed in failed:
        lines += ["", f"{each_failed['name']} BROKE A LAW: {each_failed['broken']}"]
        lines += [f"  {action}" for action in each_failed["history"]]  # type: ignore[attr-defined]
        lines += [f"replay it:  {each_failed['replay']}", f"shortened:  {each_failed['short']}"]
    if not failed:
        lines.append("every law held in every world")
    return "\n".join(lines)
