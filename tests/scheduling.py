"""How xdist shares out the tests: one by one, but those that run Spark together.

The tests that kill processes start a Spark of their own for each: they make a scope beside that of
the one session that the others share.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

SPARK = ("tests/integration/spark/", "tests/scenarios/test_spark_")
KILLED = "tests/fault/test_spark_"


class OneSpark(LoadScopeScheduling):  # type: ignore[misc]
    """Makes scopes of the tests on Spark, so that they share a session.

    `--dist loadgroup` would do, but with pytest 9.2 it ignores the groups (pytest-xdist #1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(KILLED):
            return KILLED
        return SPARK[0] if nodeid.startswith(SPARK) else nodeid
