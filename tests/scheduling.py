"""How xdist shares out the tests: one by one, but those that run Spark together.

Most share one session. Those that start a Spark of their own, to kill it or in a process of its
own, make a scope beside that, so that no more than two run at once.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

SPARK = ("tests/integration/spark/", "tests/scenarios/test_spark_")
OWN_SPARK = (
    "tests/fault/test_spark_",
    *(f"tests/integration/spark/test_{name}.py" for name in ("cluster", "daemon", "memory")),
)


class OneSpark(LoadScopeScheduling):  # type: ignore[misc]
    """Makes scopes of the tests on Spark, so that they share a session.

    `--dist loadgroup` would do, but with pytest 9.2 it ignores the groups (pytest-xdist #1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(OWN_SPARK):
            return OWN_SPARK[0]
        return SPARK[0] if nodeid.startswith(SPARK) else nodeid
