"""What is told of a job of Spark's that failed."""

from __future__ import annotations

import pytest

from sfn.audit.spark_job import spark_error_text

LOST = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.runJob.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0: Python worker exited (crashed)
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.io.EOFException
"""
OF_PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
ModuleNotFoundError: No module named 'sfn'

JVM stacktrace:
org.apache.spark.SparkException
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOST, "Job aborted due to stage failure: Lost task 0.0: Python worker exited (crashed)"),
        (OF_PYTHON, "RuntimeError: ModuleNotFoundError: No module named 'sfn'"),
        ("", "RuntimeError: no reason"),
    ],
)
def test_the_line_that_says_why_and_no_stack(text: str, expected: str) -> None:
    assert spark_error_text(RuntimeError(text)).endswith(expected)
