"""The script that `pg_restore` writes, run on a connection of ours, within its transaction.

`pg_restore` and `psql` have connections of their own, and what they do cannot share a transaction
with what follows. A script is statements and, between them, rows for COPY:

    COPY public.hosts (number, name) FROM stdin;
    1<tab>h-01
    \\.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import IO, Any

#: Bytes that are taken at a time.
_PIECE = 1 << 20
_COPY = re.compile(
    rb'COPY (?P<schema>[^ .]+)\.(?P<table>"?[^ ."]+"?) \((?P<columns>.+)\) FROM stdin;\n'
)
_END = b"\\.\n"
#: Commands of psql, and a setting that a server before 17 does not know.
_NOT_SQL = re.compile(rb"\\(un)?restrict \w+\n|SET transaction_timeout = 0;\n")


async def run_script(script: IO[bytes], connection: Any) -> None:
    """Run a script to its end on an asyncpg connection; a transaction is the caller's."""
    lines = _Lines(script)
    statements: list[bytes] = []
    while (line := await lines.next()) is not None:
        if copy := _COPY.fullmatch(line):
            await _execute(connection, statements)
            await connection.copy_to_table(
                _name(copy["table"]),
                schema_name=_name(copy["schema"]),
                columns=[_name(each) for each in copy["columns"].split(b", ")],
                source=lines.rows(),
                format="text",
            )
        elif not _NOT_SQL.fullmatch(line):
            statements.append(line)
    await _execute(connection, statements)


async def _execute(connection: Any, statements: list[bytes]) -> None:
    if any(line.strip() and not line.startswith(b"--") for line in statements):
        await connection.execute(b"".join(statements).decode())
    statements.clear()


def _name(word: bytes) -> str:
    """Return the name that an identifier is written for."""
    text = word.decode()
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


class _Lines:
    """The lines of a script, read in pieces and away from the event loop."""

    def __init__(self, script: IO[bytes]) -> None:
        self._script = script
        self._read: list[bytes] = []
        self._at = 0

    async def next(self) -> bytes | None:
        """Return the next line, or None at the end."""
        if self._at == len(self._read):
            self._read = await asyncio.to_thread(self._script.readlines, _PIECE)
            self._at = 0
            if not self._read:
                return None
        self._at += 1
        return self._read[self._at - 1]

    async def rows(self) -> AsyncIterator[bytes]:
        """Yield rows up to the line that ends them, joined to pieces."""
        some: list[bytes] = []
        size = 0
        while (line := await self.next()) not in (None, _END):
            assert line is not None
            some.append(line)
            size += len(line)
            if size >= _PIECE:
                yield b"".join(some)
                some, size = [], 0
        yield b"".join(some)
