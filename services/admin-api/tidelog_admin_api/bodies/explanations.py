"""Bodies of explain: findings, causes and next steps."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tidelog.inspection.model import Explanation as ExplainingService
from tidelog_admin_api.bodies.base import AnswerBody

# Severities that count as faults; `info` does not.
_FAULTS = ("critical", "warning")


class Finding(AnswerBody):
    """One problem, its cause and the next step."""

    cause: str = Field(description="a word for programs")
    severity: str = Field(description="critical, warning or info; info is no fault")
    summary: str
    evidence: list[str]
    next_step: str = Field(description="what to do; empty: nothing")
    topic: str = Field(description="empty: of no single topic")
    partition: int = Field(description="-1: of no single partition")
    broker: int = Field(description="the one that is to be looked at; -1: none")
    partitions: list[str] = Field(description="some of them, as sea/3")
    partition_count: int
    because: list[str] = Field(description="causes of other findings that it follows from")


class Explanation(AnswerBody):
    """The findings of explain.

    An empty list means that all is well, as far as the services that answered know.
    """

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "well": False,
                    "findings": [
                        {
                            "cause": "replica_dead",
                            "severity": "warning",
                            "summary": "broker 2 is gone",
                            "evidence": ["its address 127.0.0.1:7502 refuses connections"],
                            "next_step": "start broker 2 again",
                            "topic": "",
                            "partition": -1,
                            "broker": 2,
                            "partitions": [],
                            "partition_count": 0,
                            "because": [],
                        }
                    ],
                    "asked": ["broker-1 at 127.0.0.1:7501", "broker-2 at 127.0.0.1:7502"],
                    "silent": ["broker-2 at 127.0.0.1:7502"],
                    "listening": ["refuses connections"],
                }
            ]
        },
    )

    well: bool = Field(description="no finding is a fault")
    findings: list[Finding]
    asked: list[str] = Field(description="services, with their addresses")
    silent: list[str] = Field(description="those of them that gave no answer")
    listening: list[str] = Field(description="of each silent one, how it takes connections")


def explanation(explained: ExplainingService) -> Explanation:
    return Explanation(
        well=not any(finding.severity in _FAULTS for finding in explained.findings),
        findings=[Finding.model_validate(finding) for finding in explained.findings],
        asked=list(explained.asked),
        silent=list(explained.silent),
        listening=list(explained.listening),
    )
