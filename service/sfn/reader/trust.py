"""Which locations a reader follows that it was told by a file: whoever may write the file may not send it anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.errors import LocationRefused, Unsafe
from sfn.pointer.location import KNOWN, below, scheme_of, sound, store_of


@dataclass(frozen=True, slots=True)
class Trust:
    """What is followed from one directory.

    Without `allowed` that is the directory's own scheme: a table's metadata, or the whole table, may well have moved to
    another bucket. Of schemes whose host may be anybody's, such as `http:`, it is the directory's own host.

    Attributes:
        directory: canonical URL that the reader was given.
        allowed: canonical prefixes; where there are any, what is followed lies below one of them or the directory.
    """

    directory: str
    allowed: tuple[str, ...] = ()

    def place(self, location: str, said_by: str) -> str:
        """The canonical form of a location that may be followed.

        Args:
            said_by: the file that names it.

        Raises:
            Unsafe: it is of another scheme or host, outside of what is allowed, relative, or has user information, a
                query, a control character, an encoded, empty or dotted segment.
        """
        try:
            place = sound(location)
        except LocationRefused as refused:
            raise Unsafe(said_by, expected=refused.expected, found=f"{refused.found} in {location!r}") from None
        if below(place, self.directory):
            return place
        if self.allowed:
            if any(below(place, prefix) for prefix in self.allowed):
                return place
            expected = f"a location below {', '.join((self.directory, *self.allowed))}"
        elif scheme_of(place) == scheme_of(self.directory) in KNOWN or store_of(place) == store_of(self.directory):
            return place
        else:
            expected = f"a location of {self._own()}, as of the directory"
        remedy = "if it is right, name it, or the store, among the `allowed` prefixes; a mount is read with `relative`"
        raise Unsafe(said_by, expected=expected, found=location, remedy=remedy)

    def _own(self) -> str:
        scheme = scheme_of(self.directory)
        return f"{scheme}:" if scheme in KNOWN else store_of(self.directory)
