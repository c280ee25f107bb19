import json

import pytest
from py4j.protocol import Py4JError

from tidelog_pipeline.job_runner import EXIT_FAULT, run
from tidelog_pipeline.pipeline_config import PipelineConfig


class Config(PipelineConfig):
    @property
    def service(self) -> str:
        return "test"


def test_an_error_of_java_is_one_line_of_the_log_and_exit_status_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def act() -> int:
        raise Py4JError("An error occurred while calling o1.x.\n: java.lang.StackOverflowError\n")

    assert run(Config(), act) == EXIT_FAULT
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["problem"] == "Spark failed with java.lang.StackOverflowError"
