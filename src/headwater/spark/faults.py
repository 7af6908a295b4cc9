"""Which of Spark's errors a row is to blame for: a value out of range, or several where one is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_OF_A_ROW = (
    "org.apache.spark.SparkArithmeticException",
    "org.apache.spark.SparkDateTimeException",
)
_RAISED = "USER_RAISED_EXCEPTION"  # what Spark calls the error of raise_error


def row_fault(error: Exception) -> str | None:
    """Return what Spark says about a row on which a statement fails; None if it is another error.

    An error of a side that is sent around arrives wrapped in others.
    """
    from pyspark import errors  # noqa: PLC0415 - as in the session

    if isinstance(error, errors.ArithmeticException | errors.DateTimeException):
        return str(error)
    if isinstance(error, errors.PySparkException) and error.getCondition() == _RAISED:
        return str(error)
    return next((str(c.getMessage()) for c in _causes(error) if _is_of_a_row(c)), None)


def told(error: Exception) -> str:
    """Return what went wrong in a line: what the virtual machine calls the cause, if it says."""
    causes = [str(cause.toString()) for cause in _causes(error)]
    said = causes[-1] if causes else str(error)
    return next((line for line in said.splitlines() if line.strip()), type(error).__name__)


def _causes(error: Exception) -> Iterator[Any]:
    cause = getattr(error, "java_exception", None)
    while cause is not None:
        yield cause
        cause = cause.getCause()


def _is_of_a_row(cause: Any) -> bool:
    name = cause.getClass().getName()
    if name == "org.apache.spark.SparkRuntimeException":
        return bool(cause.getCondition() == _RAISED)
    return name in _OF_A_ROW
