"""The verbs by the names and arguments of their SQL functions; results as JSON can hold them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

from headwater.api.facade import Headwater
from headwater.database.pgivm import create_immv, refresh_immv, restore_immv
from headwater.errors import InvalidArgument
from headwater.results import Explanation

Arguments = Mapping[str, Any]


def carry_out(hw: Headwater, verb: str, arguments: Arguments) -> Any:
    """Do what a verb says; raise InvalidArgument for one that does not exist."""
    act = VERBS.get(verb)
    if act is None:
        raise InvalidArgument(
            f"there is no verb {verb!r}",
            f"the verbs are {', '.join(sorted(VERBS))}",
            "call one of the functions of the schema pgtrickle",
        )
    return json.loads(json.dumps(act(hw, arguments), default=_encode))


def _create(hw: Headwater, arguments: Arguments) -> Any:
    return asdict(hw.create_stream_table(**arguments))


def _create_tview(hw: Headwater, arguments: Arguments) -> Any:
    return asdict(hw.create_tview(**arguments))


def _create_or_replace(hw: Headwater, arguments: Arguments) -> Any:
    return asdict(hw.create_or_replace_stream_table(**arguments))


def _alter(hw: Headwater, arguments: Arguments) -> Any:
    hw.alter_stream_table(**arguments)
    return None


def _drop(hw: Headwater, arguments: Arguments) -> Any:
    return list(hw.drop_stream_table(**arguments))


def _refresh(hw: Headwater, arguments: Arguments) -> Any:
    return asdict(hw.refresh_stream_table(**arguments))


def _create_group(hw: Headwater, arguments: Arguments) -> Any:
    hw.create_refresh_group(arguments["group_name"] or "", arguments["members"] or ())
    return None


def _drop_group(hw: Headwater, arguments: Arguments) -> Any:
    hw.drop_refresh_group(arguments["group_name"] or "")
    return None


def _verify(hw: Headwater, arguments: Arguments) -> Any:
    return asdict(hw.verify(**arguments))


def _restore(hw: Headwater, arguments: Arguments) -> Any:
    return [asdict(restored) for restored in hw.restore_stream_tables(**arguments)]


def _explain(hw: Headwater, arguments: Arguments) -> Any:
    return _facts(hw.explain_st(**arguments))


def _explain_query(hw: Headwater, arguments: Arguments) -> Any:
    return _facts(hw.explain_query(**arguments))


def _facts(explanation: Explanation) -> list[tuple[str, str]]:
    """Return what is known, by name; texts as they are, all else as JSON."""
    named = ((f.name, getattr(explanation, f.name)) for f in fields(explanation))
    return [
        (name, value if isinstance(value, str) else json.dumps(value, default=_encode))
        for name, value in named
        if value not in (None, "", (), {})
    ]


def _encode(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return asdict(value)  # type: ignore[call-overload]  # results are dataclasses


VERBS: dict[str, Callable[[Headwater, Arguments], Any]] = {
    "create_stream_table": _create,
    "create_or_replace_stream_table": _create_or_replace,
    "create_tview": _create_tview,
    "alter_stream_table": _alter,
    "drop_stream_table": _drop,
    "refresh_stream_table": _refresh,
    "create_refresh_group": _create_group,
    "drop_refresh_group": _drop_group,
    "verify_stream_table": _verify,
    "restore_stream_tables": _restore,
    "explain_st": _explain,
    "explain_query": _explain_query,
    "create_immv": create_immv,
    "refresh_immv": refresh_immv,
    "restore_immv": restore_immv,
}
