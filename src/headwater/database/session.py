"""The caller's transaction inside the server, with the surface of psycopg that the verbs use.

No connection is opened: statements run through PL/Python in the transaction, with the rights and
under the settings of whoever called. A block of `transaction` is a subtransaction, and nothing ever
commits. What a connection of our own does at its end (settings, roles, isolation) the callers of
this module look after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus
from psycopg.rows import tuple_row

from headwater.database.values import Parameters, Query, is_several, loader_of, merged
from headwater.errors import bug

_FIELDS = {
    DiagnosticField.SQLSTATE: "sqlstate",
    DiagnosticField.MESSAGE_DETAIL: "detail",
    DiagnosticField.MESSAGE_HINT: "hint",
    DiagnosticField.SCHEMA_NAME: "schema_name",
    DiagnosticField.TABLE_NAME: "table_name",
    DiagnosticField.COLUMN_NAME: "column_name",
    DiagnosticField.DATATYPE_NAME: "datatype_name",
    DiagnosticField.CONSTRAINT_NAME: "constraint_name",
}


class Session:
    """The transaction of the caller; `inside` tells the verbs that it is not one of theirs."""

    inside = True
    closed = False
    isolation_level: psycopg.IsolationLevel | None = None  # taken and ignored: it is the caller's
    info = SimpleNamespace(transaction_status=TransactionStatus.INTRANS)

    def __init__(self, plpy: Any) -> None:
        self._plpy = plpy

    def execute(
        self, query: Query, params: Parameters = None, *, prepare: bool = True, binary: bool = False
    ) -> Cursor:
        """Run a statement and return its cursor; `binary` takes one statement only, as psycopg."""
        text = merged(query, params)
        if binary and is_several(text):
            raise errors.SyntaxError("cannot insert multiple commands into a prepared statement")
        return Cursor(self, tuple_row).show(self.run(text))

    def cursor(self, *, binary: bool = False, row_factory: Any = tuple_row) -> Cursor:
        """Return a cursor; with `binary` its values do not hang on the caller's DateStyle."""
        return Cursor(self, row_factory, is_plain=binary)

    @contextmanager
    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[None]:
        """Run the block in a subtransaction, and undo it after an error or if told to."""
        undo = _Undo()
        try:
            with self._plpy.subtransaction():
                yield
                if force_rollback:
                    raise undo
        except _Undo as raised:
            if raised is not undo:
                raise

    def pipeline(self) -> nullcontext[None]:
        """Do nothing: there are no round trips to spare."""
        return nullcontext()

    def run(self, text: str) -> Outcome:
        """Run a statement; the server's errors become those of psycopg."""
        try:
            result = self._plpy.execute(text)
        except self._plpy.SPIError as error:
            raise translated(error) from error
        try:
            names = result.colnames()
        except self._plpy.Error:  # a command without a result
            return Outcome((), (), [], result.nrows())
        if len(set(names)) < len(names):
            raise bug(f"two columns of one name: {names}", why="PL/Python keeps one of the two")
        return Outcome(tuple(names), tuple(result.coltypes()), list(result), result.nrows())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement returned."""

    names: tuple[str, ...]
    oids: tuple[int, ...]
    rows: list[Mapping[str, Any]]
    count: int


class Cursor:
    """Rows of one statement, made by a row factory of psycopg."""

    _encoding = "utf-8"  # asked for by the row factories
    pgresult: Any = None
    rowcount = -1

    def __init__(self, session: Session, row_factory: Any, *, is_plain: bool = False) -> None:
        self._session = session
        self._factory = row_factory
        self._is_plain = is_plain
        self._rows: Iterator[Any] = iter(())

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *error: object) -> None:
        self._rows = iter(())

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def execute(
        self, query: Query, params: Parameters = None, *, prepare: bool = True, binary: bool = False
    ) -> Cursor:
        """Run a statement and stand before its first row."""
        with _plain_dates(self._session) if self._is_plain else nullcontext():
            return self.show(self._session.run(merged(query, params)))

    def executemany(self, query: Query, params_seq: Sequence[Parameters]) -> None:
        """Run a statement once for each set of parameters."""
        for params in params_seq:
            self.execute(query, params)

    def show(self, outcome: Outcome) -> Cursor:
        """Stand before the first row of an outcome."""
        self.rowcount = outcome.count
        self.pgresult = _Description(outcome.names)
        make = self._factory(self)
        loaders = [loader_of(oid) for oid in outcome.oids]
        self._rows = iter([make(_values(row, outcome.names, loaders)) for row in outcome.rows])
        return self

    def fetchone(self) -> Any:
        """Return the next row, None after the last."""
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        return list(self._rows)


class _Undo(Exception):
    """Leaves a subtransaction so that it is rolled back."""


class _Description:
    """The part of a PGresult that row factories ask: the names of its columns."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.nfields = len(names)
        self.status = ExecStatus.TUPLES_OK if names else ExecStatus.COMMAND_OK
        self._names = names

    def fname(self, position: int) -> bytes:
        """Return the name of a column."""
        return self._names[position].encode()


def _values(
    row: Mapping[str, Any], names: Sequence[str], loaders: Sequence[Callable[[str], Any] | None]
) -> tuple[Any, ...]:
    return tuple(
        load(row[name]) if load is not None and row[name] is not None else row[name]
        for name, load in zip(names, loaders, strict=True)
    )


_STYLES = "SELECT current_setting('DateStyle') AS dates, current_setting('IntervalStyle') AS spans"


@contextmanager
def _plain_dates(session: Session) -> Iterator[None]:
    """Have the server write moments and spans in the one form that is read here."""
    [styles] = session.run(_STYLES).rows
    if styles["dates"].startswith("ISO") and styles["spans"] == "postgres":
        yield
        return
    set_styles = (
        "SELECT set_config('DateStyle', %s, true) AS dates,"
        " set_config('IntervalStyle', %s, true) AS spans"
    )
    session.run(merged(set_styles, ["ISO", "postgres"]))
    yield  # after an error the subtransaction around it takes the settings back
    session.run(merged(set_styles, [styles["dates"], styles["spans"]]))


def translated(error: Any) -> psycopg.Error:
    """Return psycopg's error for one of PL/Python's."""
    found = {field: getattr(error, name, None) for field, name in _FIELDS.items()}
    info: dict[int, bytes | None] = {
        field: str(value).encode() for field, value in found.items() if value is not None
    }
    info[DiagnosticField.MESSAGE_PRIMARY] = str(error).encode()
    try:
        kind: type[psycopg.Error] = errors.lookup(str(error.sqlstate))
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(str(error), info=info)
