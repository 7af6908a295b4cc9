"""Which functions give the same result when a query is evaluated piece by piece, at other times."""

from __future__ import annotations

from headwater.errors import UnsupportedQuery
from headwater.sql import clock
from headwater.sql.relations import Analysis, Function

# STABLE built-ins whose result depends on settings alone; maintenance runs under the settings that
# were in force at create.
PINNED_SETTINGS = (
    *("TimeZone", "DateStyle", "IntervalStyle", "extra_float_digits", "bytea_output"),
    *(
        "default_text_search_config",
        "xmloption",
        "xmlbinary",
        "lc_monetary",
        "lc_numeric",
        "lc_time",
    ),
)
_FIX = "leave it out, use refresh_mode => 'FULL', or declare the function IMMUTABLE if it is"
_BY_SETTINGS = frozenset(
    [
        "anytextcat",
        "array_to_json",
        "array_to_string",
        "concat",
        "concat_ws",
        "convert",
        "convert_from",
        "convert_to",
        "date",
        "date_add",
        "date_part",
        "date_subtract",
        "date_trunc",
        "extract",
        "format",
        "generate_series",
        "in_range",
        "interval_pl_timestamptz",
        "json_agg",
        "json_agg_strict",
        "json_build_array",
        "json_build_object",
        "json_object_agg",
        "json_object_agg_strict",
        "json_object_agg_unique",
        "json_object_agg_unique_strict",
        "json_populate_record",
        "json_populate_recordset",
        "json_to_record",
        "json_to_recordset",
        "json_to_tsvector",
        "jsonb_agg",
        "jsonb_agg_strict",
        "jsonb_build_array",
        "jsonb_build_object",
        "jsonb_path_exists_tz",
        "jsonb_path_match_tz",
        "jsonb_path_query_array_tz",
        "jsonb_path_query_first_tz",
        "jsonb_path_query_tz",
        "jsonb_populate_record",
        "jsonb_populate_record_valid",
        "jsonb_populate_recordset",
        "jsonb_to_record",
        "jsonb_to_recordset",
        "jsonb_to_tsvector",
        "length",
        "make_timestamptz",
        "money",
        "numeric",
        "overlaps",
        "phraseto_tsquery",
        "plainto_tsquery",
        "quote_literal",
        "quote_nullable",
        "row_to_json",
        "textanycat",
        "time",
        "timestamp",
        "timestamptz",
        "timestamptz_mi_interval",
        "timestamptz_pl_interval",
        "timetz",
        "timezone",
        "to_char",
        "to_date",
        "to_json",
        "to_jsonb",
        "to_number",
        "to_timestamp",
        "to_tsquery",
        "to_tsvector",
        "ts_headline",
        "ts_match_tq",
        "ts_match_tt",
        "websearch_to_tsquery",
        "xml",
        "xml_is_well_formed",
    ]
)


def check_functions(analysis: Analysis) -> None:
    """Refuse functions whose result is not a function of the rows and the pinned settings."""
    for function in analysis.functions:
        if function.volatility == "v":
            raise UnsupportedQuery(
                f"{function.name}() is VOLATILE and cannot be maintained incrementally",
                "it may give another result each time, so an old row cannot be found again",
                _FIX,
            )
        if function.volatility == "s" and not _depends_on_settings(function):
            raise UnsupportedQuery(
                f"{function.name} is STABLE and cannot be maintained incrementally",
                "its result may change between refreshes without any change of the rows",
                _FIX,
            )


def _depends_on_settings(function: Function) -> bool:
    """Tell whether pinned settings make a STABLE function deterministic.

    Comparisons across timestamp types depend on TimeZone; input and output functions on styles.
    """
    name = function.name
    if not function.is_built_in:
        return False
    if name in clock.FUNCTIONS:  # a condition may ask for the time; elsewhere it is refused
        return True
    across = "timestamptz_" in name or "_timestamptz" in name
    return name in _BY_SETTINGS or across or name.endswith(("_in", "_out"))
