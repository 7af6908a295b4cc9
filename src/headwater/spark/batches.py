"""Batches of weighted rows: stamped with an epoch, gathered into row groups, consolidated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyarrow import compute

from headwater.errors import bug

WEIGHT, EPOCH = "__weight", "__epoch"
ROW_GROUP_ROWS = 1 << 17
# Of wide rows it takes fewer to fill a group; the keys of a small change skip most of a file.
ROW_GROUP_BYTES = 12 << 20


def stamped(batch: pa.RecordBatch, epoch: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch under physical names, with the epoch."""
    if batch.num_columns != len(schema) - 1 or batch.columns[-1].null_count:
        raise bug(
            f"a batch of {batch.schema} does not fit a trace of {schema}",
            "it needs every column in order and then a weight for each row",
        )
    arrays = [a.cast(field.type) for a, field in zip(batch.columns, schema, strict=False)]
    epochs = pa.repeat(pa.scalar(epoch, pa.int64()), batch.num_rows)
    return pa.RecordBatch.from_arrays([*arrays, epochs], schema=schema)


def row_groups(rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Gather small batches, cut large ones; no rows, no group."""
    held: list[pa.RecordBatch] = []
    for batch in rows:
        for start in range(0, batch.num_rows, ROW_GROUP_ROWS):
            held.append(batch.slice(start, ROW_GROUP_ROWS))
            size = sum(part.nbytes for part in held)
            if sum(p.num_rows for p in held) >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
                yield pa.Table.from_batches(held, schema)
                held = []
    if held:
        yield pa.Table.from_batches(held, schema)


def consolidated(rows: pa.Table, floor: int) -> pa.Table:
    """Sum the weights of rows that are the same to the last bit, NULL like any value."""
    epochs = compute.max_element_wise(rows[EPOCH], floor)
    raised = rows.set_column(rows.schema.get_field_index(EPOCH), EPOCH, epochs)
    keys = [name for name in rows.schema.names if name != WEIGHT]
    summed = raised.group_by(keys).aggregate([(WEIGHT, "sum")])
    summed = summed.filter(compute.field(f"{WEIGHT}_sum") != 0).sort_by(EPOCH)
    return summed.rename_columns([*keys, WEIGHT]).select(rows.schema.names).cast(rows.schema)
