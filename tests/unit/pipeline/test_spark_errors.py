from tidelog_pipeline.job_runner import failure_cause, java_failure_cause

STREAM = """\
[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [PYTHON_STREAMING] Failed when
Traceback (most recent call last):
  File "stream_planner.py", line 150, in _continue
    raise DataLossError(found.losses)
tidelog.spark.data_loss.DataLossError: topic 'sea' was deleted and created again

	at org.apache.spark.sql.errors.QueryExecutionErrors$.error(QueryExecutionErrors.scala:1884)
JVM stacktrace:
org.apache.spark.sql.AnalysisException: SOME_ERROR
"""


def test_a_python_error_is_reported_without_java_lines() -> None:
    assert failure_cause(STREAM) == "topic 'sea' was deleted and created again"


def test_without_a_python_error_the_first_line_is_reported() -> None:
    assert failure_cause("[PATH_NOT_FOUND] Path does not exist.\n\tat org.apache") == (
        "[PATH_NOT_FOUND] Path does not exist."
    )


def test_an_exception_of_spark_within_a_micro_batch_is_reported() -> None:
    text = """\
[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: Return Message: Traceback
  File "archive_writer.py", line 258, in staged_rows
pyspark.errors.exceptions.captured.AnalysisException: [PATH_NOT_FOUND] Path does not exist: /a.

\tat org.apache.spark.sql.errors.QueryExecutionErrors$.error(QueryExecutionErrors.scala:1884)
Caused by: py4j.Py4JException: An exception was raised by the Python Proxy.
"""
    assert failure_cause(text) == "[PATH_NOT_FOUND] Path does not exist: /a."


def test_a_query_ended_by_java_is_reported_by_the_innermost_cause() -> None:
    full_disk = """\
[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: Return Message: Traceback
  File "archive_writer.py", line 238, in _staged_rows
    counted.write.mode("overwrite").partitionBy(*PARTITIONED_BY).parquet(location)
py4j.protocol.Py4JJavaError: An error occurred while calling o15344.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/a.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.error(QueryExecutionErrors.scala:1884)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
Caused by: java.io.IOException: No space left on device
\t... 23 more
"""
    assert (
        failure_cause(full_disk) == "Spark failed with java.io.IOException: No space left on device"
    )
    with_stack = (
        "[PATH_NOT_FOUND] None there.\n\nJVM stacktrace:\norg.apache.spark.SomeException: x"
    )
    assert failure_cause(with_stack) == "[PATH_NOT_FOUND] None there."


def test_an_error_of_java_is_reported_by_its_innermost_cause_in_one_line() -> None:
    """py4j reports Java errors like this if PySpark has no class for them."""
    overflow = (
        "An error occurred while calling o36.filter.\n"
        ": java.lang.StackOverflowError\n"
        "\tat org.apache.spark.sql.catalyst.trees.CurrentOrigin$.withOrigin(origin.scala:107)\n"
    )
    assert java_failure_cause(overflow) == "Spark failed with java.lang.StackOverflowError"
    nested = overflow + "Caused by: java.io.IOException: No space left on device\n\tat java.io\n"
    expected = "Spark failed with java.io.IOException: No space left on device"
    assert java_failure_cause(nested) == expected
    assert java_failure_cause("Answer from Java side is empty") == "Answer from Java side is empty"
    assert java_failure_cause(STREAM) == "topic 'sea' was deleted and created again"
