"""Audits of Kafka metadata logs in Spark: the `kraft` data source, verify, state and timeline.

Importing this package imports neither pyspark nor numpy; `register` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("kraft")` known to this Spark session."""
    from spark_audit.datasource import KraftDataSource

    spark.dataSource.register(KraftDataSource)
