"""What does not fit together of the stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sfn.errors import SfnError
from sfn.settings.model import Settings
from sfn.settings.sources import SettingsSources, variable_name
from sfn.settings.stores import KEYS_BY_SCHEME, StoreSettings
from sfn.sfnfile.locations import scheme_of

_REQUIRED_WITH: Final = {
    "access_key_id": ("secret_access_key",),
    "secret_access_key": ("access_key_id",),
    "session_token": ("access_key_id",),
    "external_id": ("role_arn",),
    "client_secret": ("tenant_id", "client_id"),
    "tenant_id": ("client_id",),
}
"""Keys that mean nothing without others."""
_CREDENTIAL_KEYS: Final = (
    ("anonymous",),
    ("access_key_id", "profile"),
    ("account_key",),
    ("sas_token",),
    ("client_id",),
    ("credentials_file",),
)
"""Keys that each say who asks: those of one line exclude those of the others, and each other."""


def check_stores(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of the sections `stores.NAME`."""
    owners: dict[str, str] = {}
    for name, store in settings.stores.items():
        owner = owners.setdefault(store.prefix, name)
        if owner != name:
            place = sources.location_of(("stores", name, "prefix"))
            yield SfnError(place, expected="a prefix of its own", found=f"the one of the store {owner}")
        for folder in store.links_to:
            if scheme_of(folder) != "file":
                place = sources.location_of(("stores", name, "links_to"))
                yield SfnError(place, expected="folders of this machine", found=folder)
        yield from _check_foreign_keys(name, store, sources)
        yield from _check_missing_keys(name, store, sources)
        yield from _check_single_credentials(name, store, sources)


def _check_foreign_keys(name: str, store: StoreSettings, sources: SettingsSources) -> Iterator[SfnError]:
    others = frozenset[str]().union(*KEYS_BY_SCHEME.values()) - KEYS_BY_SCHEME[store.scheme]
    for key in sorted(_given_keys(store) & others):
        homes = sorted(f"{scheme}:" for scheme, keys in KEYS_BY_SCHEME.items() if key in keys)
        yield SfnError(
            sources.location_of(("stores", name, key)),
            expected=f"no such key with the prefix {store.prefix}",
            found="one",
            remedy=f"remove it; it goes with {' and '.join(homes)}",
        )


def _check_missing_keys(name: str, store: StoreSettings, sources: SettingsSources) -> Iterator[SfnError]:
    given = _given_keys(store)
    for key in sorted(given & _REQUIRED_WITH.keys()):
        for needed in _REQUIRED_WITH[key]:
            if needed not in given:
                place = ("stores", name, needed)
                yield SfnError(
                    sources.location_of(place),
                    expected=f"a value, as {key} is set",
                    found="none",
                    remedy=f"set it there or as {variable_name(place)}",
                )


def _check_single_credentials(name: str, store: StoreSettings, sources: SettingsSources) -> Iterator[SfnError]:
    given = _given_keys(store)
    first, *more = [key for way in _CREDENTIAL_KEYS for key in way if key in given] or [""]
    for key in more:
        yield SfnError(
            sources.location_of(("stores", name, key)),
            expected="one way to say who asks",
            found=f"{first} and {key}",
            remedy="keep one of them",
        )


def _given_keys(store: StoreSettings) -> set[str]:
    """The keys that say something."""
    return {key for key in store.model_fields_set if getattr(store, key) not in {None, False}}
