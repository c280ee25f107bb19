"""Topics as tables in Spark (needs the extra `spark`).

    from tidelog.spark import register

    register(spark)
    spark.read.format("tidelog").option("bootstrap.servers", "127.0.0.1:7500") \\
        .option("subscribe", "sea").load()
"""

from tidelog.spark.data_source import TidelogDataSource, register
from tidelog.spark.query_metrics import QueryMetrics, watch

__all__ = ["QueryMetrics", "TidelogDataSource", "register", "watch"]
