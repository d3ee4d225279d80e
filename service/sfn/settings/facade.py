"""The section `facade`: a read-only catalog that is answered from SFN files."""

from __future__ import annotations

from pydantic import Field

from sfn.settings.kinds import File, Prefixes, Token
from sfn.settings.quantities import Size
from sfn.settings.section import Section


class FacadeSettings(Section):
    """Who may read through it, and what. Without a token, and not open, there is none.

    Attributes:
        token: its readers' bearer token; `token_file` a file with such tokens, one a line; read again when it changes.
        open: everybody who reaches the listener may read.
        roots: canonical prefixes: a table whose files or whose location lie below none of them is not shown; empty for
            those of all stores.
        directories: tables may be called by their directories, in the namespace `dir`.
        metadata_limit: most bytes of a metadata file's JSON.
    """

    token: Token | None = Field(default=None, repr=False)
    token_file: File | None = None
    open: bool = False
    roots: Prefixes = ()
    directories: bool = True
    metadata_limit: Size = 64 << 20

    @property
    def has_token(self) -> bool:
        """Whether its readers show one."""
        return self.token is not None or self.token_file is not None

    @property
    def is_on(self) -> bool:
        """Whether there is a facade."""
        return self.open or self.has_token
