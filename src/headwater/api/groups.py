"""Refresh groups: stream tables that always move together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from headwater.api.reconcile import reconcile
from headwater.catalog import groups, streams
from headwater.catalog.model import StreamTable
from headwater.errors import AlreadyExists, InvalidArgument, NotFound

SMALLEST = 2  # members


def create_refresh_group(conn: Connection[Any], group_name: str, members: Sequence[str]) -> None:
    """Have stream tables move together from their next refresh on; all is checked first."""
    _check_arguments(group_name, members)
    reconcile(conn)
    with conn.transaction():
        groups.lock_groups(conn)
        if groups.has_group(conn, group_name):
            raise AlreadyExists(
                f"there is a refresh group {group_name} already",
                "a group is known by its name",
                "choose another name, or drop that group first",
            )
        tables = [streams.get_stream_table(conn, name) for name in members]
        _check_once(group_name, tables)
        for st in tables:
            _check_member(conn, group_name, st)
        groups.record_group(conn, group_name, [st.pgt_id for st in tables])


def drop_refresh_group(conn: Connection[Any], group_name: str) -> None:
    """Let the members of a group move each by itself again."""
    if not groups.drop_group(conn, group_name):
        known = groups.list_names(conn)
        raise NotFound(
            f"there is no refresh group {group_name}",
            f"the groups of this database are: {', '.join(known) or 'none'}",
            "name one of those" if known else "create it first",
        )


def refuse_member(conn: Connection[Any], st: StreamTable, mode: str) -> None:
    """Refuse to have writers move a member of a group."""
    group = groups.find_group_of(conn, st.pgt_id)
    if group is not None:
        raise InvalidArgument(
            f"{st.qualified_name} cannot become {mode}: it is in the refresh group {group}",
            "its writers would move it, and a group moves only as a whole",
            f"drop the refresh group {group} first",
        )


def _check_arguments(group_name: str, members: Sequence[str]) -> None:
    if not group_name or not group_name.strip():
        raise InvalidArgument(
            "a refresh group needs a name", "none was given", "give it one, such as 'billing'"
        )
    if isinstance(members, str) or len(members) < SMALLEST:
        raise InvalidArgument(
            f"the refresh group {group_name} needs at least two members",
            "a single stream table has nobody to move with",
            "name two stream tables or more",
        )


def _check_once(group_name: str, tables: Sequence[StreamTable]) -> None:
    """Refuse a table that was named twice, however its name was written."""
    for name, count in Counter(st.qualified_name for st in tables).items():
        if count > 1:
            raise InvalidArgument(
                f"{name} was named {count} times for the refresh group {group_name}",
                "a stream table is in a group once",
                "name each stream table once",
            )


def _check_member(conn: Connection[Any], group_name: str, st: StreamTable) -> None:
    if st.follows_writers:
        raise InvalidArgument(
            f"{st.qualified_name} cannot be in the refresh group {group_name}:"
            f" it is {st.effective_mode}",
            "its writers move it, and a group moves only as a whole",
            "leave it out, or alter its refresh_mode first",
        )
    other = groups.find_group_of(conn, st.pgt_id)
    if other is not None:
        raise InvalidArgument(
            f"{st.qualified_name} is in the refresh group {other} already",
            "in two groups it would tie both together",
            f"leave it out, or drop the refresh group {other} and create one of all members",
        )
