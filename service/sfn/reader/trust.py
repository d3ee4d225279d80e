"""Which locations a reader follows that it was told by a file: whoever may write the file may not send it anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from sfn.errors import LocationRefused, Unsafe
from sfn.pointer.location import below, sound, store_of


@dataclass(frozen=True, slots=True)
class Trust:
    """What is followed from one directory.

    Without `allowed` that is the directory's own bucket, container or host: who may write there could else have a
    reader show what only the reader may see.

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
            Unsafe: it is in another bucket or on another host, outside of what is allowed, relative, or has user
                information, a query, a control character, an encoded, empty or dotted segment.
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
        elif store_of(place) == store_of(self.directory):
            return place
        else:
            expected = f"a location in {store_of(self.directory)}, as the directory is"
        remedy = "if it is right, name it among the `allowed` prefixes (`--allow`); a mount is read with `relative`"
        raise Unsafe(said_by, expected=expected, found=location, remedy=remedy)
