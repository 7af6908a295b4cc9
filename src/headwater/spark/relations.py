"""Traces as relations of Spark, defined once and used by every statement that reads the same files.

To define one takes Spark longer than to read a small file: about 15 ms. What did not change since
the last refresh, and what several stream tables read, is there already. Files are never rewritten
under their names, so a list of them means the same rows for ever.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from headwater.spark.traces import Files, read_trace
from headwater.spark.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 256  # relations of a session, which cost some kilobytes each

Columns = tuple[tuple[str, Wire], ...]
Span = tuple[int | None, int | None]  # after which epoch, up to which
_Views = OrderedDict[tuple[str, Files, Columns, Span], str]

# By session, with which they go. The lock serves threads that refresh side by side.
_defined: WeakKeyDictionary[SparkSession, _Views] = WeakKeyDictionary()
_lock = threading.Lock()


def defined(
    spark: SparkSession, what: str, files: Files, columns: Columns, span: Span = (None, None)
) -> str:
    """Return the name of a view of those rows of these files, in this session.

    The one that was not used for longest makes room for a new one. The name tells `what` it shows.
    """
    key = what, files, columns, _needed(files, span)
    with _lock:
        views = _defined.setdefault(spark, OrderedDict())
        if key not in views:
            name = f"trace_{uuid.uuid4().hex}_{what}"
            read_trace(spark, files, columns, *key[3]).createOrReplaceTempView(name)
            views[key] = name
        views.move_to_end(key)
        while len(views) > MOST:
            spark.catalog.dropTempView(views.popitem(last=False)[1])
        return views[key]


def _needed(files: Files, span: Span) -> Span:
    """Leave out the bounds that all rows of the files keep anyway."""
    after, upto = span
    if not files or after is None or min(file.first_epoch for file in files) > after:
        after = None
    if not files or upto is None or max(file.last_epoch for file in files) <= upto:
        upto = None
    return after, upto
