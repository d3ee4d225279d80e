"""The tree stays within its limits: sizes, unique names, plain words, links (`make shape` shows all figures)."""

from __future__ import annotations

import pytest

from tests.shape.measures import Measure, measured


@pytest.mark.parametrize("measure", measured(), ids=lambda measure: measure.name)
def test_a_measure_of_the_tree_fits(measure: Measure) -> None:
    assert measure.low <= measure.value <= measure.high, "\n".join(measure.examples)
