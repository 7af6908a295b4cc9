"""`headwater.connect()` and the object that it returns: one method per verb, no logic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection
from psycopg.rows import class_row

from headwater.api import (
    alter,
    create,
    doctor,
    drop,
    explain,
    groups,
    lake,
    polling,
    refresh,
    restore,
    tviews,
    verify,
)
from headwater.api.reconcile import reconcile, sweep
from headwater.catalog import history, install, streams
from headwater.catalog.leader import wake
from headwater.catalog.model import Refresh
from headwater.catalog.rows import cursor_of
from headwater.embedded import EmbeddedServer, start
from headwater.errors import AlreadyExists, ServerUnreachable
from headwater.results import (
    UNCHANGED,
    Created,
    Diagnosis,
    Edge,
    Explanation,
    Finding,
    LakeView,
    Patch,
    RefreshGroup,
    RefreshResult,
    Restored,
    Status,
    Unchanged,
    Vacuumed,
    Verification,
)
from headwater.spark.lake import Lake, LakeConnection
from headwater.spark.session import SparkOptions

if TYPE_CHECKING:
    from headwater.spark.travel import DataFrame


def connect(  # noqa: PLR0913 - what a user may want to say, each by its name
    dsn: str | None = None,
    *,
    home: str | Path = "./.headwater",
    lake: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark_master: str = "local[*]",
    spark_options: Mapping[str, str] | None = None,
) -> Headwater:
    """Connect to a database, or to an embedded PostgreSQL whose data lives under `home`.

    Installs or upgrades the catalog. `lake` is the directory or URL for what the Spark engine
    stores, by default a directory under `home`; `storage_options` are the credentials for it.
    Spark starts when a stream table first needs it.
    """
    options = SparkOptions(spark_master, tuple(sorted((spark_options or {}).items())))
    place = Lake(lake or default_lake(home), dict(storage_options or {}), options)
    server = start(Path(home)) if dsn is None else None
    try:
        hw = Headwater(dsn if dsn is not None else str(server and server.dsn), server, place)
    except BaseException:
        if server is not None:
            server.stop()
        raise
    try:
        hw.init()
    except BaseException:
        hw.close()
        raise
    return hw


def default_lake(home: str | Path) -> str:
    """Return where the Spark engine stores its data unless told otherwise."""
    return str(Path(home).absolute() / "lake")


def open_connection(dsn: str, lake: Lake | None = None) -> Connection[Any]:
    """Open a connection in which every verb makes its own transactions."""
    try:
        conn = LakeConnection.connect(dsn, autocommit=True, application_name="headwater")
    except psycopg.OperationalError as error:
        raise ServerUnreachable(
            f"no connection to PostgreSQL: {str(error).strip()}",
            "the server does not run, or refuses this connection",
            "check the DSN, that the server runs, and that it lets you in",
        ) from error
    conn.lake = lake
    return conn


class Headwater:
    """A connection to a database with stream tables."""

    def __init__(
        self, dsn: str, server: EmbeddedServer | None = None, lake: Lake | None = None
    ) -> None:
        self.dsn = dsn
        self._server = server
        self._lake = lake
        self._conn = open_connection(dsn, lake)

    @classmethod
    def over(cls, conn: Connection[Any]) -> Headwater:
        """Return the verbs over a connection that is open, or over a transaction in the server."""
        hw = cls.__new__(cls)
        hw.dsn, hw._server, hw._lake, hw._conn = "", None, None, conn
        return hw

    @property
    def connection(self) -> Connection[Any]:
        """The connection that the verbs run on."""
        return self._conn

    def close(self) -> None:
        """Close the connection and, if this was its last user, the embedded server."""
        self._conn.close()
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> Headwater:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def init(self) -> list[int]:
        """Install or upgrade the catalog; return the versions that were applied."""
        install.check_server(self._conn)
        return install.install(self._conn)

    def is_at_home(self) -> bool:
        """Tell whether the catalog was made in this database, and did not come by a dump."""
        return install.is_at_home(self._conn)

    def uninstall(self) -> None:
        """Remove every trace of headwater; stream tables stay as plain tables."""
        install.uninstall(self._conn)

    def create_stream_table(  # noqa: PLR0913, PLR0917 - the arguments of the SQL function
        self,
        name: str,
        query: str,
        schedule: str | None = "1m",
        refresh_mode: str = "AUTO",
        initialize: bool = True,
        engine: str = "auto",
        cdc_mode: str | None = None,
        publish: bool = True,
    ) -> Created:
        """Create a table that is kept equal to `query`; a schedule of None means DOWNSTREAM."""
        options = {
            "schedule": schedule,
            "refresh_mode": refresh_mode,
            "initialize": initialize,
            "engine": engine,
            "cdc_mode": cdc_mode,
            "publish": publish,
        }
        request = create.make_request(self._conn, name, query, options)
        make = polling.create_polled if request.cdc_mode == "poll" else create.create_stream_table
        created = make(self._conn, request)
        wake(self._conn)
        return created

    def create_tview(  # noqa: PLR0913 - the arguments of the SQL function
        self,
        name: str,
        query: str | None = None,
        *,
        key: Sequence[str] | None = None,
        data: str = "data",
        view: str | None = None,
        patches: bool = False,
    ) -> Created:
        """Create a table of documents that follow their sources at each commit.

        By convention its name is tv_<entity>, its key pk_<entity>, and `query` becomes the view
        v_<entity>; without a query that view is there already. With `patches`, what becomes of
        each document is told, too.
        """
        options = {"key": key, "data": data, "view": view, "patches": patches}
        wanted = tviews.make_tview(self._conn, name, query, options)
        return tviews.create_tview(self._conn, wanted)

    def patches(self, after: str | None = None, name: str | None = None) -> tuple[Patch, ...]:
        """Return what became of documents since a position, of all tviews or of one."""
        return tviews.list_patches(self._conn, after, name)

    def trim_patches(self, before: str | None = None) -> int:
        """Delete the patches that a reader at that position has read; None: all there are."""
        return tviews.trim_patches(self._conn, before)

    def patch_position(self) -> str:
        """Return the position to read patches from for whoever reads the documents now."""
        return tviews.patch_position(self._conn)

    def create_or_replace_stream_table(  # noqa: PLR0913, PLR0917 - the arguments of the SQL function
        self,
        name: str,
        query: str,
        schedule: str | None = "1m",
        refresh_mode: str = "AUTO",
        initialize: bool = True,
        engine: str = "auto",
        cdc_mode: str | None = None,
        publish: bool = True,
    ) -> Created:
        """Create the stream table, or alter the one of that name to this definition."""
        try:
            return self.create_stream_table(
                name, query, schedule, refresh_mode, initialize, engine, cdc_mode, publish
            )
        except AlreadyExists:
            st = streams.find_stream_table(self._conn, name)
            if st is None or st.publish != publish:
                raise
        self.alter_stream_table(name, schedule, refresh_mode, None, engine, cdc_mode, query)
        st = streams.get_stream_table(self._conn, name)
        return Created(
            st.qualified_name,
            st.key_columns,
            str(st.effective_mode),
            str(st.effective_engine),
            str(st.reason),
        )

    def alter_stream_table(  # noqa: PLR0913, PLR0917 - the arguments of the SQL function
        self,
        name: str,
        schedule: str | Unchanged | None = UNCHANGED,
        refresh_mode: str | None = None,
        status: str | None = None,
        engine: str | None = None,
        cdc_mode: str | None = None,
        query: str | None = None,
    ) -> None:
        """Change a stream table; None leaves a thing as it is, except that a schedule of None
        means DOWNSTREAM."""
        changes = alter.Changes(schedule, refresh_mode, status, engine, cdc_mode, query)
        alter.alter_stream_table(self._conn, name, changes)
        wake(self._conn)
        sweep(self._conn)

    def drop_stream_table(self, name: str, cascade: bool = False) -> tuple[str, ...]:
        """Drop a stream table; refused while others read it, unless `cascade`."""
        dropped = drop.drop_stream_table(self._conn, name, cascade=cascade)
        polling.drop_unread(self._conn)
        sweep(self._conn)
        return dropped

    def refresh_stream_table(self, name: str, wait: bool = True) -> RefreshResult:
        """Bring a stream table and all that it reads to the state of now."""
        result = refresh.refresh_stream_table(self._conn, name, wait=wait)
        if result.action == "REINITIALIZE":
            sweep(self._conn)
        return result

    def create_refresh_group(self, group_name: str, members: Sequence[str]) -> None:
        """Have stream tables always move together, in one transaction to one epoch."""
        groups.create_refresh_group(self._conn, group_name, members)
        wake(self._conn)

    def drop_refresh_group(self, group_name: str) -> None:
        """Let the members of a refresh group move each by itself again."""
        groups.drop_refresh_group(self._conn, group_name)
        wake(self._conn)

    def refresh_groups(self) -> tuple[RefreshGroup, ...]:
        """Return the refresh groups, with their members and the epoch that they stand at."""
        reconcile(self._conn)
        with cursor_of(self._conn, RefreshGroup) as cursor:
            return tuple(cursor.execute("SELECT * FROM pgtrickle.refresh_groups()"))

    def pgt_status(self) -> tuple[Status, ...]:
        """Return the state of every stream table."""
        reconcile(self._conn)
        return self._rows(Status, "SELECT * FROM pgtrickle.pgt_status()")

    def refresh_history(self, pgt_name: str, max_rows: int = 20) -> tuple[Refresh, ...]:
        """Return the latest refreshes of a stream table, newest first."""
        st = streams.get_stream_table(self._conn, pgt_name)
        return history.list_history(self._conn, st.pgt_id, max_rows)

    def st_graph(self) -> tuple[Edge, ...]:
        """Return what each stream table reads."""
        reconcile(self._conn)
        return self._rows(Edge, "SELECT * FROM pgtrickle.st_graph()")

    def explain_st(self, name: str) -> Explanation:
        """Explain how a stream table is maintained and what its last refresh cost."""
        return explain.explain_st(self._conn, name)

    def explain_query(self, query: str) -> Explanation:
        """Explain how a query would be maintained, without creating anything."""
        return explain.explain_query(self._conn, query)

    def health_check(self) -> tuple[Finding, ...]:
        """Return everything that is wrong, each with its fix; nothing if all is well."""
        return self._rows(Finding, "SELECT * FROM pgtrickle.health_check()")

    def doctor(self, fix: bool = False) -> tuple[Diagnosis, ...]:
        """Return what is left over, missing or broken; with `fix`, mend it first."""
        return doctor.examine(self._conn, fix=fix)

    def restore_stream_tables(self) -> tuple[Restored, ...]:
        """Make a catalog that came out of a dump this database's own; nothing if it is."""
        restored = restore.restore_stream_tables(self._conn)
        wake(self._conn)
        return restored

    def verify(self, name: str) -> Verification:
        """Prove a stream table equal to its query, or say by how much it differs."""
        return verify.verify(self._conn, name)

    def read_at(self, name: str, when: int | datetime) -> DataFrame:
        """Return a source or stream table as it was, from its copy in the lake.

        `when` is an epoch or a moment; Spark starts if it does not run.
        """
        return lake.read_at(self._conn, name, when)

    def lake_view(self, name: str) -> LakeView:
        """Say where the lake holds a source or stream table, and how anyone can read it."""
        return lake.lake_view(self._conn, name)

    def vacuum(self) -> tuple[Vacuumed, ...]:
        """Delete what nobody can ask the lake for any more, and merge small files."""
        return lake.vacuum(self._conn)

    def _rows(self, kind: type[Any], query: str) -> tuple[Any, ...]:
        with self._conn.cursor(binary=True, row_factory=class_row(kind)) as cursor:
            return tuple(cursor.execute(query))
