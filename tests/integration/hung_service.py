"""`python -m tests.integration.hung_service WHAT serve --config FILE`: the service, where something never returns.

files    the kernel never answers the store's reads: as on a mount whose server is gone
wait     a read never returns, cancelled or not, and no thread is to blame
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from typing_extensions import override

from sfn.app import service
from sfn.domain.jobs import StoredObject
from sfn.settings import load
from sfn.storage import ObjectStore
from tests.faults.stores import SlowStore
from tests.promises.processes import Hang, Step

READ = Step("openat2")
CLOSING = 1.0


class Deaf(SlowStore):
    """A store whose reads heed nothing."""

    @override
    async def read(self, key: str) -> StoredObject | None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()
        raise AssertionError


def deaf(inner: ObjectStore) -> ObjectStore:
    return Deaf(inner, 0)


if __name__ == "__main__":
    settings = load(Path(sys.argv[-1]))
    service.SHUTDOWN_TIMEOUT = CLOSING  # type: ignore[misc]
    if sys.argv[1] == "files":
        Hang(READ)
        raise SystemExit(service.run(settings))
    raise SystemExit(service.run(settings, wrap_store=deaf))
