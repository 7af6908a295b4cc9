"""Which traces a stream table reads: its own of before, those of others, and those of now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltalake.exceptions import DeltaError
from psycopg import Connection

from headwater.algebra.codec import encode
from headwater.catalog import epochs, traces
from headwater.catalog.model import Epoch, TraceRow
from headwater.errors import StreamTableDamaged
from headwater.postgres.quote import WEIGHT
from headwater.spark.ingest import Need, Recorded, Standing, columns_of, unseen_since
from headwater.spark.lake import Lake
from headwater.spark.traces import Trace

Known = Mapping[int, Recorded]  # by source


@dataclass(frozen=True, slots=True)
class Reader:
    """A stream table, as a reader of traces; to be asked before the role is that of its owner."""

    conn: Connection[Any]
    lake: Lake
    pgt_id: int
    retention: str

    def own(self) -> Known:
        """Return the traces that the table reads, as far as they still are whole.

        One may hold more than this table uses of a source, and be cut off by a change of that.
        """
        rows = traces.list_whole(self.conn, self.pgt_id)
        return {row.source_relid: self._recorded(row) for row in rows}

    def shared(self, wanted: Mapping[int, Need], buffers: Mapping[int, str]) -> Known:
        """Return traces that other stream tables read and that have all that this one needs."""
        found: dict[int, Recorded] = {}
        for row in reversed(traces.list_shareable(self.conn, self.pgt_id, wanted)):  # newest first
            relid, known = row.source_relid, self._recorded(row)
            has_columns = set(wanted[relid].columns) <= set(columns_of(row))
            if relid not in found and has_columns and self._is_sound(known, buffers[relid]):
                found[relid] = known
        return found

    def _recorded(self, row: TraceRow) -> Recorded:
        keep_after = traces.earliest_needed(self.conn, row, self.retention)
        return Recorded(row, epochs.get_epoch(self.conn, row.epoch), keep_after)

    def _is_sound(self, known: Recorded, buffer: str) -> bool:
        """Tell whether a trace is there, and whether what its source did since can be followed."""
        unseen = unseen_since(self.conn, known.stands)
        marked = f"SELECT FROM {buffer} WHERE {WEIGHT} = 0 AND {unseen} LIMIT 1"
        if self.conn.execute(marked.encode()).fetchone() is not None:
            return False
        try:
            Trace(known.row.url, self.lake.storage_options).files(known.row.version)
        except (StreamTableDamaged, DeltaError, OSError):
            return False  # whoever reads it will say so; this table need not
        return True

    def record(self, found: Mapping[int, Standing], epoch: Epoch, known: Known) -> None:
        """Tell the catalog which versions count from now on, and which traces the table reads."""
        for relid, standing in found.items():
            trace_id = self._record(relid, standing, epoch)
            if relid not in known or known[relid].row.trace_id != trace_id:
                traces.record_reader(self.conn, self.pgt_id, relid, trace_id)
        epochs.mark_in_lake(self.conn, epoch)

    def _record(self, relid: int, standing: Standing, epoch: Epoch) -> int:
        at = standing.version, epoch
        if standing.row is None:
            where = standing.url, encode(standing.columns)
            return traces.record_trace(self.conn, self.pgt_id, relid, where, at)
        row = standing.row
        traces.record_version(self.conn, row.trace_id, (at[0], epoch.epoch), standing.since)
        return row.trace_id
