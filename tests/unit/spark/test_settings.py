from __future__ import annotations

from pathlib import Path

from headwater.spark.session import DELTA_PACKAGE, SparkOptions, spark_settings

WAREHOUSE = Path("/scratch/warehouse")


def test_users_options_win() -> None:
    options = SparkOptions(
        master="local[3]",
        options=(("spark.sql.shuffle.partitions", "7"), ("spark.executor.memory", "3g")),
    )
    ours = spark_settings(SparkOptions(master="local[3]"), WAREHOUSE)
    assert spark_settings(options, WAREHOUSE) == {
        **ours,
        "spark.sql.shuffle.partitions": "7",
        "spark.executor.memory": "3g",
    }


def test_a_cluster_must_reach_the_driver() -> None:
    local = spark_settings(SparkOptions(), WAREHOUSE)
    cluster = spark_settings(SparkOptions(master="spark://head:7077"), WAREHOUSE)
    assert local.keys() - cluster.keys() == {
        "spark.driver.bindAddress",
        "spark.driver.host",
        "spark.sql.shuffle.partitions",
    }
    assert cluster["spark.master"] == "spark://head:7077"


def test_delta_is_loaded_when_asked_for() -> None:
    plain = spark_settings(SparkOptions(), WAREHOUSE)
    delta = spark_settings(SparkOptions(delta=True), WAREHOUSE)
    assert delta == {
        **plain,
        "spark.jars.packages": DELTA_PACKAGE,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def test_delta_is_added_to_the_users_packages() -> None:
    packages = "org.example:other:1.0"
    options = SparkOptions(options=(("spark.jars.packages", packages),), delta=True)
    assert spark_settings(options, WAREHOUSE)["spark.jars.packages"] == (
        f"{packages},{DELTA_PACKAGE}"
    )


def test_the_users_version_of_delta_is_kept() -> None:
    packages = "io.delta:delta-spark_4.2_2.13:9.9"
    options = SparkOptions(options=(("spark.jars.packages", packages),), delta=True)
    assert spark_settings(options, WAREHOUSE)["spark.jars.packages"] == packages
