"""Keep the classes that Spark loads in an archive, from which the tests start it in half the time.

A virtual machine writes it when it ends; another one that does not fit it goes on without it. No
Java, no archive: what needs Spark says so itself.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from headwater.errors import HeadwaterError
from headwater.spark.session import SparkOptions, start_session, stop_session

ARCHIVE = Path(sys.prefix) / "spark.jsa"
STATEMENTS = (
    "SELECT k, sum(v), count(*) FROM rows GROUP BY k",
    "SELECT * FROM rows AS a JOIN rows AS b ON a.k = b.v WHERE a.v IN (1, 2) ORDER BY a.k LIMIT 9",
    "SELECT /*+ BROADCAST(b) */ a.t FROM rows AS a LEFT JOIN rows AS b ON a.k = b.k",
    "SELECT row_number() OVER (PARTITION BY k ORDER BY v) FROM rows",
    "SELECT k FROM rows EXCEPT ALL SELECT v FROM rows",
)


def main() -> None:
    """Start Spark, have it do what refreshes do, and end it."""
    written = ARCHIVE.with_suffix(".new")
    written.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={written}"
    try:
        spark = start_session(SparkOptions(master="local[2]"))
    except HeadwaterError as error:
        sys.exit(f"Spark will start slowly, or not at all: {error.what}")
    with tempfile.TemporaryDirectory() as scratch:
        columns = "id % 7 AS k, id AS v, CAST(id AS string) AS t, CAST(id AS decimal(38, 2)) AS d"
        spark.sql(f"SELECT {columns} FROM range(100)").write.parquet(f"{scratch}/rows")
        spark.read.parquet(f"{scratch}/rows").createOrReplaceTempView("rows")
        for statement in STATEMENTS:
            spark.sql(statement).toArrow()
    stop_session()
    if written.exists():
        written.replace(ARCHIVE)


if __name__ == "__main__":
    main()
