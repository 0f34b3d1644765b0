"""Audits of Kafka metadata logs in Spark: the `kraft` data source, verify, state and timeline.

Importing this package imports neither pyspark nor numpy; `register` does.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("kraft")` known to this Spark session."""
    from spark_audit.datasource import KraftDataSource

    if (spark.sparkContext.master or "").startswith("local"):
        # Its workers run on this machine: they must find what this interpreter finds.
        spark.sparkContext.pythonExec = sys.executable
    spark.dataSource.register(KraftDataSource)
