"""How xdist shares out the tests: one by one, but those that run Spark all to one worker."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

SPARK = (
    "tests/integration/spark/",
    "tests/fault/test_spark_",
    "tests/scenarios/test_spark_",
)


class OneSpark(LoadScopeScheduling):  # type: ignore[misc]
    """Makes one scope of the tests on Spark, so that only one session runs at a time.

    `--dist loadgroup` would do, but with pytest 9.2 it ignores the groups (pytest-xdist #1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        return SPARK[0] if nodeid.startswith(SPARK) else nodeid
