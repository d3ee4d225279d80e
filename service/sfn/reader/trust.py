"""Which locations a reader follows that it was told by a file: whoever may write the file may not send it anywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sfn.errors import LocationRefused, Unsafe
from sfn.sfnfile.locations import canonical, check_any_scheme, check_literal, is_below, scheme_of, store_prefix

_ESCAPE: Final = re.compile("%(?:2E|2F|5C)")
"""As `sfn.sfnfile.naming` writes them."""
_DECODED: Final = {"http", "https"}
"""Schemes whose servers take a part of a path for a query, and `%2F` for a separator."""


@dataclass(frozen=True, slots=True)
class AllowedLocations:
    """What is followed from one directory.

    Without `allowed` that is the directory's own bucket, container or host: who may write there could else have a
    reader show what only the reader may see.

    Attributes:
        directory: canonical URL that the reader was given.
        allowed: canonical prefixes; where there are any, what is followed lies below one of them or the directory.
    """

    directory: str
    allowed: tuple[str, ...] = ()

    def check_location(self, location: str, named_by: str) -> str:
        """The canonical form of a location that may be followed.

        Args:
            named_by: the file that names it.

        Raises:
            Unsafe: it is in another bucket or on another host, outside of what is allowed, relative, or has user
                information, a query, a control character, an encoded, empty or dotted segment.
        """
        _check_shape(location, location, named_by)
        return self._within(canonical(location), location, named_by)

    def check_file(self, location: str, named_by: str) -> str:
        """As `place`, of a file that a table's metadata names: what other locations may not have is part of its name.

        Over HTTP it is not, and may lead elsewhere.

        Raises:
            Unsafe: it is in another bucket or on another host, outside of what is allowed, relative, or has user
                information, a control character or a dotted segment; over HTTP also as of `place`.
        """
        if scheme_of(canonical(location)) in _DECODED:
            return self.check_location(location, named_by)
        try:
            place = check_literal(location)
        except LocationRefused as refused:
            raise _unsafe_error(refused, location, named_by) from None
        return self._within(place, location, named_by)

    def check_link(self, location: str, named_by: str) -> str:
        """As `place`, of an SFN file: one of a name with a dot or a slash is called by the escape of it.

        Over HTTP that is the character itself, and may lead elsewhere.
        """
        is_decoded = scheme_of(canonical(location)) in _DECODED
        _check_shape(location if is_decoded else _ESCAPE.sub("-", location), location, named_by)
        return self._within(canonical(location), location, named_by)

    def _within(self, place: str, location: str, named_by: str) -> str:
        if is_below(place, self.directory):
            return place
        if self.allowed:
            if any(is_below(place, prefix) for prefix in self.allowed):
                return place
            expected = f"a location below {', '.join((self.directory, *self.allowed))}"
        elif store_prefix(place) == store_prefix(self.directory):
            return place
        else:
            expected = f"a location in {store_prefix(self.directory)}, as the directory is"
        remedy = "if it is right, name it among the `allowed` prefixes (`--allow`); a mount is read with `relative`"
        raise Unsafe(named_by, expected=expected, found=location, remedy=remedy)


def _check_shape(shape: str, location: str, named_by: str) -> None:
    try:
        check_any_scheme(shape)
    except LocationRefused as refused:
        raise _unsafe_error(refused, location, named_by) from None


def _unsafe_error(refused: LocationRefused, location: str, named_by: str) -> Unsafe:
    return Unsafe(named_by, expected=refused.expected, found=f"{refused.found} in {location!r}")
