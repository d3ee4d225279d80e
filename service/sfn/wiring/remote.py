"""From the settings to stores on object stores, over connections that they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from sfn.errors import SfnError
from sfn.settings import StoreSettings
from sfn.store.denials import Denials
from sfn.store.objects import Objects
from sfn.store.pool import Pool
from sfn.store.prove import Proofs
from sfn.store.remote import RemoteStore


class Remotes:
    """Makes stores, each of which keeps what it was proven to do and what it permits. Closed together."""

    def __init__(self) -> None:
        self._pools: dict[Path | None, Pool] = {}
        self._stores: list[RemoteStore] = []

    def store(self, name: str, settings: StoreSettings) -> RemoteStore:
        """The store of one section.

        Raises:
            SfnError: the packages that speak to it are not installed.
        """
        with _extra_of(name, settings.scheme):
            match settings.scheme:
                case "s3":
                    objects, made_up = self._s3(settings)
                case scheme:
                    raise AssertionError(scheme)
        proofs = Proofs(made_up=made_up, unsafe=settings.unsafe_unconditional_writes)
        store = RemoteStore(objects, proofs, Denials(anyio.current_time))
        self._stores.append(store)
        return store

    async def close(self) -> None:
        """Close all connections."""
        for store in self._stores:
            await store.close()
        for pool in self._pools.values():
            await pool.close()

    def _pool(self, settings: StoreSettings) -> Pool:
        return self._pools.setdefault(settings.ca_file, Pool(settings.ca_file))

    def _s3(self, settings: StoreSettings) -> tuple[Objects, str]:
        from sfn.aws import Identity, Keys
        from sfn.store.s3 import MADE_UP, AddressBook, S3Objects, S3Terms

        keys = None
        if settings.access_key_id is not None and settings.secret_access_key is not None:
            token = None if settings.session_token is None else settings.session_token.get_secret_value()
            keys = Keys(settings.access_key_id, settings.secret_access_key.get_secret_value(), token)
        identity = Identity(keys, settings.profile, settings.role_arn, settings.external_id, settings.region)
        terms = S3Terms(
            identity=None if settings.anonymous else identity,
            endpoint=settings.endpoint,
            region=settings.region,
            path_style=settings.path_style,
        )
        return S3Objects(terms, self._pool(settings), AddressBook()), MADE_UP


_EXTRAS = {"s3": "s3", "abfss": "azure", "wasbs": "azure", "gs": "gcs"}


@contextmanager
def _extra_of(name: str, scheme: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _EXTRAS[scheme]
        raise SfnError(
            f"stores.{name}.prefix",
            expected=f"the packages that {scheme}: needs",
            found=f"no module {error.name}",
            remedy=f"pip install 'iceberg-sfn[{extra}]'",
        ) from error
