"""Names of metadata files, usual and unusual, and of files that may lie beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

SUFFIX: Final = ".metadata.json"
_ID: Final = "9c12d441-03fe-4693-9a96-a0705ddf69c1"

UNUSUAL: Final = (
    *("v3", "v0", "v03", "v00003", "v3.gz", "v3-a", f"v3-{_ID}", "v1700000000000", "vv3", "V3", "v", "v3.5", "v-3"),
    *("3", "0", "00003", "3.gz", "-3", "+3", "3.5", "1e3", "v1e3", "1_000", "inf", "nan", "3-", "0x3"),
    *("\N{ARABIC-INDIC DIGIT THREE}", "v\N{ARABIC-INDIC DIGIT THREE}", "\N{VULGAR FRACTION ONE HALF}", "\u4e09"),
    *(" 3", "3 ", " v3", "v3 ", "a b", " a", "a ", "a%20b", "a%2Fb", "a#b", "a?b", "a+b", "\u00e4"),
    *(f"00003-{_ID}", f"v00003-{_ID}", f"00003-{_ID}.gz", _ID, f"v{_ID}", _ID.replace("-", ""), "3-a", "abc", "abc.gz"),
    *("sfn-withdrawn-1", ".a", "_a", "-"),
)
"""Names without the suffix."""

_BESIDE: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {
        "with a v": lambda stem: f"v{stem}",
        "without its v": lambda stem: stem.removeprefix("v"),
        "trimmed": lambda stem: stem.strip(),
        "without zeros": lambda stem: f"v{stem.removeprefix('v').lstrip('0') or '0'}",
        "the number": lambda _stem: "v3",
        "the next number": lambda _stem: "v4",
        "compressed": lambda stem: f"{stem}.gz",
        "its digits": lambda stem: "".join(sign for sign in stem if sign.isdigit()) or "3",
    }
)
NEIGHBOURS: Final = ("none", *_BESIDE, "all")
"""What may lie beside a file of such a name, in words."""


def neighbours(stem: str, which: str) -> list[str]:
    """Names of other metadata files, in order; at least one with `all`."""
    if which == "none":
        return []
    made = {beside(stem) for word, beside in _BESIDE.items() if which in {word, "all"}}
    return sorted(f"{name}{SUFFIX}" for name in made if name and name != stem)
