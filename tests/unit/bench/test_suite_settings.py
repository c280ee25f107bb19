"""Forms, settings and parts of the suite."""

import pytest

from bench.suite import estimate
from bench.suite.settings import FULL, PARTS, QUICK, chosen, parts_of


def test_a_changed_setting_makes_a_separate_form() -> None:
    assert chosen("full", {"repeats": None, "sizes": None}) == ("full", FULL)
    form, settings = chosen("quick", {"sizes": (1_000,)})
    assert form == "custom"
    assert settings.sizes == (1_000,)
    assert settings.repeats == QUICK.repeats


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"sizes": (1_000, 0)}, {"sizes": ()}])
def test_settings_are_positive(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        chosen("full", wrong)


def test_parts_run_in_their_order() -> None:
    assert parts_of("quick", ["alone", "latency"]) == ("latency", "alone")
    assert parts_of("full", []) == PARTS
    assert "history" not in parts_of("quick", [])


def test_the_quick_form_takes_two_minutes() -> None:
    whole = sum(estimate.seconds(part, QUICK) for part in parts_of("quick", []))

    assert whole + estimate.CLUSTER_S <= 120


def test_every_part_has_an_estimated_duration() -> None:
    assert all(estimate.seconds(part, FULL) > 0 for part in PARTS)
