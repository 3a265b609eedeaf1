"""Jobs, pools and accounts as tables for a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roost.base.units import format_bytes, format_cpu
from roost.cli.show import listings, tables
from roost.wire import jobs as w

_STYLES = {
    "completed": "green", "running": "cyan", "ready": "green", "failed": "bold red",
    "lost": "bold red", "cancelled": "dim", "returned": "dim",
}  # fmt: skip


def _state(word: str) -> Text:
    return Text(word, style=_STYLES.get(word, ""))


def money(micro: int | None) -> str:
    """Return an amount of money for people."""
    return "" if micro is None else f"{micro / 1e6:.4f}"


def _counts(counts: w.JobCounts) -> str:
    found = [
        f"{getattr(counts, name)} {name}"
        for name in ("waiting", "queued", "live", "completed", "failed", "cancelled", "lost")
        if getattr(counts, name)
    ]
    return ", ".join(found)


def submitted(found: w.ArrayDetail) -> RenderableType:
    """Return what a submission has made."""
    number = f"{found.size} jobs" if found.size > 1 else "one job"
    return Text.assemble((found.id, "bold"), f"  {number} in pool {found.pool}, {found.state}")


def listed(found: Sequence[w.ArrayBody]) -> RenderableType:
    """Return submissions, one line each."""
    made = tables.table(
        "job", "name", "project", "pool", "state", "jobs", "cost", "created", right=("cost",)
    )
    for each in found:
        made.add_row(
            Text(each.id, style="bold"), Text(each.name), Text(each.project), Text(each.pool),
            _state(each.state), Text(_counts(each.jobs)), money(each.cost_micro), each.created_at,
        )  # fmt: skip
    return made


def listed_jobs(found: Sequence[w.JobBody]) -> RenderableType:
    """Return the jobs of an array, one line each."""
    made = tables.table(
        "job", "state", "exit", "attempt", "ran", "machine", "why", right=("exit", "attempt", "ran")
    )
    for each in found:
        made.add_row(
            Text(each.id, style="bold"), _state(each.state),
            "" if each.exit_code is None else str(each.exit_code), str(each.attempt),
            f"{each.run_ms / 1000:.2f} s" if each.run_ms else "", Text(each.machine or ""),
            Text(each.reason),
        )  # fmt: skip
    return made


def detail(found: w.ArrayDetail) -> RenderableType:
    """Return an array and how far it has come."""
    pairs: list[tuple[str, RenderableType]] = [
        ("job", Text(found.id, style="bold")),
        ("state", _state(found.state)),
        ("jobs", Text(f"{found.size}: {_counts(found.jobs)}")),
        ("pool", Text(found.pool)),
        ("command", Text(" ".join(found.spec.get("command") or ()))),
        ("created", Text(f"{found.created_at} by {found.created_by}")),
    ]
    if found.needs:
        pairs.append(("needs", Text(", ".join(found.needs))))
    if found.cost_micro or found.estimate_micro:
        said = money(found.cost_micro)
        if found.finished_at is None and found.estimate_micro is not None:
            said += f" so far, about {money(found.estimate_micro)} in all"
        pairs.append(("cost", Text(said)))
    if found.estimate_s is not None:
        pairs.append(("mean run", Text(f"{found.estimate_s:.3f} s")))
    return listings.lines(pairs)


def job(found: w.JobDetail) -> RenderableType:
    """Return a job and its attempts."""
    pairs: list[tuple[str, RenderableType]] = [
        ("job", Text(found.id, style="bold")),
        ("state", _state(found.state)),
        ("pool", Text(found.pool)),
        ("queued", Text(found.queued_at)),
    ]
    if found.machine:
        pairs.append(("machine", Text(f"{found.machine}, attempt {found.attempt}")))
    if found.reason:
        said = f"{found.reason}: {found.message}" if found.message else found.reason
        pairs.append(("why", Text(said + (" (not its own doing)" if found.internal else ""))))
    if found.exit_code is not None:
        pairs.append(("exit code", Text(str(found.exit_code))))
    if found.finished_at:
        used = f"ran {found.run_ms / 1000:.2f} s, {format_bytes(found.memory_bytes)} at most"
        pairs.append(("finished", Text(f"{found.finished_at}; {used}")))
        pairs.append(("cost", Text(money(found.cost_micro))))
    pairs += [
        ("output", Text(f"{each.name} {format_bytes(each.bytes)} {each.url}"))
        for each in found.outputs
    ]
    parts: list[RenderableType] = [listings.lines(pairs)]
    if found.attempts:
        made = tables.table("attempt", "machine", "ended", "why", right=("attempt",))
        for tried in found.attempts:
            made.add_row(
                str(tried.attempt), Text(tried.machine), tried.ended_at,
                Text(f"{tried.reason}: {tried.message}".rstrip(": ")),
            )  # fmt: skip
        parts.append(made)
    return Group(*parts)


def explained(found: w.ExplainBody) -> RenderableType:
    """Return why a job is not running."""
    lines = [Text.assemble((found.job, "bold"), f" is {found.state}")]
    lines += [Text(f"  {said}") for said in found.sentences]
    return Group(*lines)


def stats(found: w.StatsBody) -> RenderableType:
    """Return counts, hours and money."""
    pairs: list[tuple[str, RenderableType]] = [
        ("jobs", Text(_counts(found.jobs) or "none")),
        ("submissions", Text(str(found.arrays))),
        ("run", Text(f"{found.run_hours:.3f} h")),
        ("cost of jobs", Text(money(found.cost_micro))),
        ("machines now", Text(str(found.running_machines))),
        ("machine hours", Text(f"{found.machine_hours:.3f}")),
        ("rent", Text(money(found.rent_micro))),
    ]
    if found.waiting_s_p50 is not None:
        said = f"{found.waiting_s_p50:.0f} s, {found.waiting_s_most:.0f} s at most"
        pairs.append(("waiting", Text(said)))
    return listings.lines(pairs)


def kinds(found: Sequence[w.JobKindBody]) -> RenderableType:
    """Return job kinds, one line each."""
    made = tables.table("kind", "project", "command", "description")
    for each in found:
        what = each.spec.get("image") or " ".join(each.spec.get("command") or ())
        made.add_row(
            Text(each.name, style="bold"), Text(each.project or ""), Text(what),
            Text(each.description),
        )  # fmt: skip
    return made


def kind(found: w.JobKindBody) -> RenderableType:
    """Return one job kind."""
    spec = found.spec
    return listings.lines(
        [
            ("kind", Text(found.name, style="bold")),
            ("description", Text(found.description)),
            ("image", Text(spec.get("image") or "")),
            ("command", Text(" ".join(spec.get("command") or ()))),
            ("parameters", Text(", ".join(found.parameters_schema.get("properties", {})))),
        ]
    )


def pools(found: Sequence[w.PoolBody]) -> RenderableType:
    """Return pools, one line each."""
    made = tables.table(
        "pool", "provider", "machines", "cores", "an hour", "queued", "live", "remark",
        right=("cores", "an hour", "queued", "live"),
    )  # fmt: skip
    for each in found:
        there = ", ".join(f"{number} {state}" for state, number in sorted(each.machines.items()))
        made.add_row(
            Text(each.name, style="bold"), Text(each.provider),
            Text(f"{there or 'none'} (at most {each.max_machines})"), format_cpu(each.cpu_milli),
            money(each.rate_micro), str(each.queued), str(each.live), Text(each.trouble),
        )  # fmt: skip
    return made


def pool(found: w.PoolBody) -> RenderableType:
    """Return one pool."""
    there = ", ".join(f"{number} {state}" for state, number in sorted(found.machines.items()))
    pairs: list[tuple[str, RenderableType]] = [
        ("pool", Text(found.name, style="bold")),
        ("provider", Text(found.provider + (f", {found.account}" if found.account else ""))),
        ("machines", Text(f"{there or 'none'}; from {found.min_machines} to {found.max_machines}")),
        ("types", Text(", ".join(found.types) or "any")),
        ("kept warm", Text(f"{found.warm}, others go back after {found.idle_grace_s} s")),
        ("assigns", Text(f"{found.ordering}, {found.fit} fit")),
        ("jobs", Text(f"{found.queued} queued, {found.live} live")),
        ("spends", Text(f"{money(found.rate_micro)} an hour, {money(found.spent_micro)} so far")),
    ]
    if found.trouble:
        pairs.append(("trouble", Text(found.trouble, style="red")))
    return listings.lines(pairs)


def machines(found: Sequence[w.MachineBody]) -> RenderableType:
    """Return machines, one line each."""
    made = tables.table(
        "machine", "type", "state", "cores", "memory", "jobs", "cost", "remark",
        right=("cores", "memory", "jobs", "cost"),
    )  # fmt: skip
    for each in found:
        made.add_row(
            Text(each.id, style="bold"), Text(f"{each.type} {each.market}"), _state(each.state),
            f"{format_cpu(each.cpu_milli_committed)}/{format_cpu(each.cpu_milli)}",
            f"{format_bytes(each.memory_bytes_committed)}/{format_bytes(each.memory_bytes)}",
            str(each.attempts), money(each.cost_micro), Text(each.reason),
        )  # fmt: skip
    return made


def accounts(found: Sequence[w.AccountBody]) -> RenderableType:
    """Return accounts, one line each."""
    made = tables.table("account", "provider", "project", "machines", "an hour", "credentials")
    for each in found:
        most = "" if each.max_machines is None else f" of {each.max_machines}"
        made.add_row(
            Text(each.name, style="bold"), Text(each.provider), Text(each.project or ""),
            f"{each.machines}{most}", money(each.rate_micro),
            "sealed" if each.has_credentials else "none",
        )  # fmt: skip
    return made
