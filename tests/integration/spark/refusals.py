"""Which fixtures of the battery Spark refuses, and why."""

from __future__ import annotations

REFUSALS: dict[str, dict[str, str]] = {
    "scalar": {},
    "joins": {
        "expression_join": "lower on (string) is not known to be the same in Spark",
        "array_join": "the expression is not understood: 'tags' stands where nothing known can",
        "five_chained_left": "its change would read the sources 219 times",
    },
    "aggregates": {
        "scalar_aggregates": "an aggregate over all rows would be recomputed from all rows",
        "having_scalar": "an aggregate over all rows would be recomputed from all rows",
        "scalar_of_aggregate": "an aggregate over all rows would be recomputed from all rows",
        "aggregate_join": "the constant 'NaN' of type numeric",
        "aggregate_left_join": "the constant 'NaN' of type numeric",
        "scale_of_sums_in_bag": "sum sums values that have no exact sum in Spark",
        "numeric_keys_in_bag": "values of amount cannot be compared in Spark as PostgreSQL does",
        "types_of_keys_in_bag": "values of tags cannot be compared in Spark as PostgreSQL does",
        "fixed_scales_in_bag": "the constant 'NaN' of type numeric",
    },
    "sets": {
        "mixed_types_all": "the branches of a UNION give Spark columns of different types",
        "mixed_numeric": "the branches of a UNION give Spark columns of different types",
        "union_types": "the constant '{}' of type jsonb",
    },
    "nested": {
        "cte_aggregate_many": "the constant 'NaN' of type numeric",
        "view_nested": "the constant 'NaN' of type numeric",
    },
    "chains": {"over_partitions": "an aggregate over all rows would be recomputed from all rows"},
}
