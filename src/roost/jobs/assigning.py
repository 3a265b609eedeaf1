"""Assignments: a job's row and its array's spec as a worker is told them, placeholders filled in.

    {index}            the job's number in its array
    {item}             its item, a text as it is and anything else as JSON
    {item.KEY}         a field of an item that is an object
    {parameters.KEY}   a parameter
    {{ and }}          braces

A word that names something that is not there is refused when the job is submitted. Credentials of a
private registry are opened here, for the worker that needs them, and kept nowhere.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Connection

from roost.base.errors import InvalidRequest
from roost.jobs.books import ON_MACHINE, job_name
from roost.jobs.logins import login_for
from roost.jobs.rows import spec_of
from roost.model.job import JobSpec, attempt_id
from roost.parts.sealing import Seal
from roost.wire.workerlink import Assignment, InputOrder, OutputOrder, RegistryLogin

_WORD = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)(?:\.([^{}]+))?\}")
_json = msgspec.json.Encoder().encode
_read = msgspec.json.decode
#: Assignments of one answer; the rest comes with the next.
MOST_AT_A_TIME = 512
#: The row of a job that no worker is told, and why.
Refused = tuple[Mapping[str, Any], str]


def fill(word: str, index: int, item: Any, parameters: Mapping[str, Any]) -> str:
    """Fill the placeholders of one word of a command; refuses one that names nothing."""
    if "{" not in word and "}" not in word:
        return word

    def value(match: re.Match[str]) -> str:
        whole, name, key = match.group(0), match.group(1), match.group(2)
        if whole in ("{{", "}}"):
            return whole[0]
        if name == "index" and key is None:
            return str(index)
        if name == "item":
            if key is None:
                return _text(item)
            if isinstance(item, dict) and key in item:
                return _text(item[key])
        if name == "parameters" and key is not None and key in parameters:
            return _text(parameters[key])
        raise InvalidRequest(
            f"{whole} in the command stands for nothing that this job has",
            hint="Maybe a brace is meant: write it twice.",
            word=word[:200],
        )

    return _WORD.sub(value, word)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value).decode()


@lru_cache(maxsize=2048)
def _parameters(text: str) -> dict[str, Any]:
    found: dict[str, Any] = _read(text)
    return found


def assignment(row: Mapping[str, Any], outputs_to: str, login: RegistryLogin | None) -> Assignment:
    """Return a job as its worker is told it."""
    spec: JobSpec = spec_of(row["spec"])
    index = int(row["idx"])
    item = None if row["item"] is None else _read(row["item"])
    parameters = _parameters(spec.parameters)
    if isinstance(item, dict):
        parameters = {**parameters, **{str(key): value for key, value in item.items()}}
    job = job_name(row["array"], index)
    attempt = attempt_id(job, row["attempt"])
    environment = dict(spec.environment)
    environment |= {
        "ROOST_JOB": job,
        "ROOST_ARRAY": row["array"],
        "ROOST_INDEX": str(index),
        "ROOST_ATTEMPT": str(row["attempt"]),
    }
    if item is not None:
        environment["ROOST_ITEM"] = _text(item)
    where = spec.outputs_to or outputs_to
    return Assignment(
        attempt=attempt,
        job=job,
        index=index,
        command=[fill(word, index, item, parameters) for word in spec.command],
        cpu_milli=spec.demand.cpu_milli,
        memory_bytes=spec.demand.memory_bytes,
        disk_bytes=spec.demand.disk_bytes,
        run_limit_s=spec.run_limit_s,
        image=spec.image,
        environment=environment,
        parameters=parameters,
        inputs=[InputOrder(each.name, each.url, each.digest) for each in spec.inputs],
        outputs=[OutputOrder(each.name, each.required) for each in spec.outputs],
        outputs_to=f"{where.rstrip('/')}/{row['project']}/{attempt}" if where else "",
        own_store=not spec.outputs_to,
        registry=login,
    )


class Assigner:
    """Makes assignments; knows where outputs go by default and how registries are opened."""

    def __init__(self, outputs_to: str, seal: Seal) -> None:
        self._outputs_to, self._seal = outputs_to, seal

    @staticmethod
    def rows(connection: Connection, machine: str) -> list[dict[str, Any]]:
        """Return the jobs that a machine has."""
        return [dict(row) for row in connection.execute(ON_MACHINE, {"on": machine}).mappings()]

    def assignments(
        self, connection: Connection, rows: Iterable[Mapping[str, Any]]
    ) -> tuple[list[Assignment], list[Refused]]:
        """Return the jobs of a machine as its worker is told them, and those that it is not told:
        their account has no login for their image."""
        found: list[Assignment] = []
        refused: list[Refused] = []
        logins: dict[tuple[str, str], RegistryLogin | InvalidRequest | None] = {}
        for row in rows:
            if row["state"] not in ("scheduled", "running"):
                continue
            spec = spec_of(row["spec"])
            key = spec.registry_account, spec.image
            if key not in logins:
                logins[key] = self._login(connection, *key)
            if isinstance(login := logins[key], InvalidRequest):
                refused.append((row, login.message))
                continue
            found.append(assignment(row, self._outputs_to, login))
            if len(found) >= MOST_AT_A_TIME:
                break
        return found, refused

    def _login(
        self, connection: Connection, account: str, image: str
    ) -> RegistryLogin | InvalidRequest | None:
        """Open the login for an image; what stands against it is an answer, of one job of many."""
        try:
            return login_for(connection, self._seal, account, image)
        except InvalidRequest as refusal:
            return refusal
