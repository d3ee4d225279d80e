"""Strategies: names as catalogs have them, and documents that are nearly right."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

names: Final = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=30)
levels: Final = st.lists(names, max_size=4)
identifiers: Final = st.fixed_dictionaries({"namespace": levels, "name": names})

scalars: Final = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["a\x1fb", "\x7f", "main", "x" * 600, "AFTER_DROP_TABLE", "1.0"])
)
anything: Final = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
"""Any JSON that both sides can read."""


@st.composite
def nearly(draw: st.DrawFn, content: object) -> object:
    """A document with some of its values left out, replaced, added to or wrapped."""
    for _ in range(draw(st.integers(0, 3))):
        content = draw(_once(content))
    return content


@st.composite
def _once(draw: st.DrawFn, content: object) -> object:
    """The document with one change, somewhere in it."""
    if isinstance(content, dict) and content and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(content)))
        return content | {key: draw(_once(content[key]))}
    if isinstance(content, list) and content and draw(st.booleans()):
        index = draw(st.integers(0, len(content) - 1))
        return [*content[:index], draw(_once(content[index])), *content[index + 1 :]]
    if isinstance(content, dict) and content and draw(st.booleans()):
        left_out = draw(st.sampled_from(sorted(content)))
        return {key: value for key, value in content.items() if key != left_out}
    if isinstance(content, dict) and draw(st.booleans()):
        return content | draw(st.dictionaries(st.text(max_size=8), anything, max_size=3))
    return draw(anything)
