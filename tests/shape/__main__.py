"""Print the figures of the tree beside their limits; ends with 1 where one does not fit."""

from __future__ import annotations

import sys

from tests.shape.measures import measured


def main() -> int:
    """Print one line a figure, with examples of what does not fit."""
    found = measured()
    for one in found:
        limit = f"at most {one.high:,.0f}" if not one.low else f"{one.low:,.0f} to {one.high:,.0f}"
        if one.goal is not None:
            limit += f", {one.goal:,.0f} one day"
        print(f"{'ok ' if one.fits else 'BAD'} {one.value:>10,.0f}  {one.name} ({limit})")
        if not one.fits:
            for example in one.examples:
                print(f"                 {example}")
    return 0 if all(one.fits for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
