"""Statements that name rows by the values of some columns, built once for each set of columns.

SQLAlchemy takes several times longer to build a statement than to run one that it knows; here only
the values are new. Any other statement that runs often is built once too, with `bindparam`, in the
module that asks it. As in SQL, no row has the value None: what may be empty is no key.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Delete,
    Insert,
    Select,
    Table,
    Update,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.sql.elements import BindParameter, ColumnElement

Row = dict[str, Any]


class Plus(NamedTuple):
    """A new value for `update_row`: so much more than the row has."""

    amount: int


def find_row(connection: Connection, table: Table, key: Row, *, lock: bool = False) -> Row | None:
    """Return the row that has these values, or None."""
    found = connection.execute(_select(table, tuple(key), lock), _where(key)).first()
    return None if found is None else dict(zip(_names(table), found, strict=True))


def find_rows(connection: Connection, table: Table, key: Row) -> list[Row]:
    """Return all rows that have these values, in the order of the primary key."""
    names = _names(table)
    found = connection.execute(_select_all(table, tuple(key)), _where(key))
    return [dict(zip(names, row, strict=True)) for row in found]


def insert_row(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Insert a row into a table."""
    connection.execute(_insert(table), dict(row))


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows into a table, all in one statement."""
    if rows:
        connection.execute(_insert(table), [dict(row) for row in rows])


def update_rows(
    connection: Connection, table: Table, key: tuple[str, ...], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Change rows that are there, whole and in one statement; `key` names the columns to find."""
    if not rows:
        return
    others = tuple(name for name in _names(table) if name not in key)
    connection.execute(
        _update_whole(table, key, others),
        [
            {f"is_{name}" if name in key else f"new_{name}": row[name] for name in _names(table)}
            for row in rows
        ],
    )


def update_row(connection: Connection, table: Table, key: Row, values: Row) -> Row | None:
    """Change the row that has these values; return it as it is then, or None when none has."""
    more = tuple(name for name, value in values.items() if type(value) is Plus)
    parameters = _where(key)
    for name, value in values.items():
        parameters[f"new_{name}"] = value.amount if name in more else value
    statement = _update(table, tuple(key), tuple(values), more)
    found = connection.execute(statement, parameters).first()
    return None if found is None else dict(zip(_names(table), found, strict=True))


def delete_rows(connection: Connection, table: Table, key: Row) -> int:
    """Delete the rows that have these values; return how many."""
    return connection.execute(_delete(table, tuple(key)), _where(key)).rowcount


def count_rows(connection: Connection, table: Table) -> int:
    """Return how many rows a table has."""
    return int(connection.execute(_count(table)).scalar_one())


def count_each(connection: Connection, tables: tuple[Table, ...]) -> dict[str, int]:
    """Return how many rows each of some tables has, by its name, in one statement."""
    return dict(connection.execute(_count_each(tables)).mappings().one())


# A parameter must not have the name of a column that is set: hence the two prefixes.


def _where(key: Row) -> Row:
    return {f"is_{name}": value for name, value in key.items()}


def _conditions(table: Table, key: tuple[str, ...]) -> list[ColumnElement[bool]]:
    return [table.c[name] == _parameter(table, "is", name) for name in key]


def _parameter(table: Table, prefix: str, name: str) -> BindParameter[Any]:
    return bindparam(f"{prefix}_{name}", type_=table.c[name].type)


@cache
def _names(table: Table) -> tuple[str, ...]:
    return tuple(table.c.keys())


@cache
def _select(table: Table, key: tuple[str, ...], lock: bool) -> Select[Any]:
    statement = select(table).where(*_conditions(table, key))
    return statement.with_for_update() if lock else statement


@cache
def _select_all(table: Table, key: tuple[str, ...]) -> Select[Any]:
    return select(table).where(*_conditions(table, key)).order_by(*table.primary_key)


@cache
def _count(table: Table) -> Select[Any]:
    return select(func.count()).select_from(table)


@cache
def _count_each(tables: tuple[Table, ...]) -> Select[Any]:
    return select(*(_count(table).scalar_subquery().label(table.name) for table in tables))


@cache
def _insert(table: Table) -> Insert:
    return insert(table)


@cache
def _update(
    table: Table, key: tuple[str, ...], values: tuple[str, ...], more: tuple[str, ...]
) -> Update:
    changed: dict[str, ColumnElement[Any]] = {
        name: _parameter(table, "new", name) for name in values
    }
    for name in more:
        changed[name] = table.c[name] + changed[name]
    statement = update(table).where(*_conditions(table, key)).values(changed)
    return statement.returning(*table.c)


@cache
def _update_whole(table: Table, key: tuple[str, ...], others: tuple[str, ...]) -> Update:
    changed = {name: _parameter(table, "new", name) for name in others}
    return update(table).where(*_conditions(table, key)).values(changed)


@cache
def _delete(table: Table, key: tuple[str, ...]) -> Delete:
    return delete(table).where(*_conditions(table, key))
