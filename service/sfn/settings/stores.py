"""The sections `stores.NAME`."""

from __future__ import annotations

from sfn.settings.kinds import LocalPrefix
from sfn.settings.section import Section


class StoreSettings(Section):
    """Where tables lie.

    Attributes:
        prefix: canonical; locations below it are this store's.
        unsafe_unconditional_writes: use a store that cannot compare and swap.
    """

    prefix: LocalPrefix
    unsafe_unconditional_writes: bool = False
