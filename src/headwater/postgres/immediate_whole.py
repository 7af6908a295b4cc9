"""Whole statements: what several triggers of one statement change is collected until the last.

A setting of the transaction tells how many statements are under way, with an `x` for each, and with
an `h` before them whether something was collected. A statement that is alone finds a single `x`.
"""

from __future__ import annotations

from headwater.postgres.immediate_view import XID, View, function_name, pending_name, since_name
from headwater.postgres.quote import WEIGHT, dollar_quoted, identifier, listed, literal


def _setting(view: View) -> str:
    return f"'pg_trickle.open_{view.pgt_id}'"


def opening_function(view: View) -> str:
    """Return the statement that makes the function which counts the statements under way.

    An assignment, since PERFORM would be a query.
    """
    opened = _setting(view)
    code = (
        "DECLARE\n__pgt_text pg_catalog.text;\nBEGIN\n"
        f"__pgt_text := pg_catalog.set_config({opened},"
        f" coalesce(pg_catalog.current_setting({opened}, true), '')"
        " OPERATOR(pg_catalog.||) 'x'::pg_catalog.text, true);\n"
        "RETURN NULL;\nEND"
    )
    return (
        f"CREATE OR REPLACE FUNCTION {function_name(view.pgt_id, 'open')}() RETURNS trigger"
        f" LANGUAGE plpgsql AS {dollar_quoted(code)}"
    )


def open_setting(view: View) -> str:
    """Return what the setting holds, as SQL."""
    return f"current_setting({_setting(view)}, true)"


def released_line(view: View) -> str:
    """Return the line that forgets that something was collected, with nothing under way."""
    return f"__pgt_text := set_config({_setting(view)}, '', true);"


def collecting_lines(view: View, oid: int, select: str) -> list[str]:
    """Keep the change for later unless this is the only trigger of its statement."""
    return [
        f"__pgt_text := {open_setting(view)};",
        "IF __pgt_text = 'x' THEN",
        f"  {released_line(view)}",
        "ELSE",
        *_closing(view),
        "  IF __pgt_held OR (__pgt_open > 0 AND __pgt_rows > 0) THEN",
        f"    {collect_statement(view, oid, select)};",
        _set(view, "'h'", "__pgt_open"),
        f"    IF __pgt_open = 0 THEN PERFORM {function_name(view.pgt_id)}(); END IF;",
        "    RETURN NULL;",
        "  END IF;",
        "  IF __pgt_open > 0 THEN RETURN NULL; END IF;",
        "END IF;",
    ]


def _closing(view: View) -> list[str]:
    """Count one statement less; without a BEFORE trigger there was none."""
    return [
        "  __pgt_held := coalesce(starts_with(__pgt_text, 'h'), FALSE);",
        "  __pgt_open := coalesce(greatest(length(ltrim(__pgt_text, 'h')) - 1, 0), 0);",
        _set(view, "CASE WHEN __pgt_held THEN 'h' ELSE '' END", "__pgt_open"),
    ]


def _set(view: View, held: str, count: str) -> str:
    return f"__pgt_text := set_config({_setting(view)}, {held} || repeat('x', {count}), true);"


def fresh_lines(view: View) -> list[str]:
    """Refuse a frozen snapshot from before the triggers: what others wrote then left no trace."""
    return [
        "IF current_setting('transaction_isolation') <> 'read committed' THEN",
        f"  PERFORM FROM {since_name(view.pgt_id)};",
        "  IF NOT FOUND THEN",
        "    RAISE EXCEPTION 'could not serialize access: % follows its sources only since later',"
        f" {literal(view.target.name)} USING ERRCODE = 'serialization_failure',"
        " HINT = 'Run the transaction again.';",
        "  END IF;",
        "END IF;",
    ]


def unaltered_lines(view: View, end: str = "RETURN NULL;") -> list[str]:
    """Let the writer go on where the table or a source is not what the functions were made for.

    The first question is a constant in most plans; see `pgtrickle.is_captured`.
    """
    known = listed(f"'{oid}'::regclass" for oid in view.relations)
    asked = f"({view.pgt_id}, ARRAY[{known}]::regclass[])"
    same = f"pgtrickle.is_followed{asked} IS TRUE OR pgtrickle.look_at_sources{asked}"
    if view.uses_functions:
        same = f"({same}) AND pgtrickle.look_at_functions({view.pgt_id})"
    return [
        f"IF ({same}) IS NOT TRUE THEN",
        f"  PERFORM pgtrickle.note_altered({view.pgt_id});",
        f"  PERFORM set_config({_setting(view)}, '', true);",
        f"  {end}",
        "END IF;",
    ]


def collect_statement(view: View, oid: int, select: str) -> str:
    """Return the statement that keeps changes until the last trigger."""
    columns = listed([*(identifier(c.name) for c in view.columns[oid]), WEIGHT])
    return (
        f"INSERT INTO {pending_name(view.pgt_id, oid)} (__xid, {columns})"
        f" SELECT {XID}, {columns} FROM ({select}) AS c"
    )


def refuse_truncate(view: View) -> list[str]:
    """Refuse TRUNCATE under a frozen snapshot: it also removes rows that nobody there can see."""
    return [
        "IF current_setting('transaction_isolation') <> 'read committed' THEN",
        "RAISE EXCEPTION '% cannot be truncated in this transaction', TG_RELID::regclass"
        " USING ERRCODE = 'feature_not_supported',"
        " DETAIL = format('The stream table %s follows it, and TRUNCATE also removes rows that"
        f" a transaction of this isolation level cannot see.', {literal(view.target.name)}),"
        " HINT = 'Use READ COMMITTED, or DELETE.';",
        "END IF;",
    ]


def collect_rows(view: View, oid: int) -> str:
    """Return the line that keeps all rows of the table under the trigger, which are to go."""
    own = [identifier(c.name) for c in view.columns[oid]]
    select = f"SELECT {listed([*own, f'-1 AS {WEIGHT}'])} FROM ONLY %s"
    copy = collect_statement(view, oid, select).replace("%", "%%").replace("ONLY %%s", "ONLY %s")
    return f"EXECUTE format({dollar_quoted(copy)}, TG_RELID::regclass);"


def truncating_lines(view: View, oid: int) -> tuple[list[str], list[str]]:
    """Return what is done before and after TRUNCATE.

    Before it the rows are there to be collected; after it they are followed.
    """
    reading = f"__pgt_text := {open_setting(view)};"
    before = [
        *refuse_truncate(view),
        reading,
        _set(view, "'h'", "coalesce(length(ltrim(__pgt_text, 'h')), 0) + 1"),
        collect_rows(view, oid),
    ]
    after = [
        reading,
        *_closing(view),
        f"IF __pgt_open = 0 THEN PERFORM {function_name(view.pgt_id)}(); END IF;",
    ]
    return before, after
