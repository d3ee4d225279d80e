"""What does not fit together of how catalogs are asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sfn.errors import SfnError
from sfn.settings.catalogs import CatalogSettings
from sfn.settings.model import Settings
from sfn.settings.sources import SettingsSources, variable_name

_SECRET_KEYS: Final = frozenset({"credential", "credential_file", "oauth2_uri", "token", "token_file"})
_AWS_KEYS: Final = frozenset({"aws_profile", "external_id", "role_arn", "signing_name", "signing_region"})
_GOOGLE_KEYS: Final = frozenset({"google_credentials_file"})
_REST_KEYS: Final = (
    _SECRET_KEYS
    | _AWS_KEYS
    | _GOOGLE_KEYS
    | {"auth", "ca_file", "headers", "scope", "uri", "vended_credentials", "warehouse"}
)
_PYICEBERG_KEYS: Final = frozenset({"properties"})

_KEYS_OF_OTHER_TYPES: Final = {"rest": _PYICEBERG_KEYS, "pyiceberg": _REST_KEYS, "told": _REST_KEYS | _PYICEBERG_KEYS}
"""Keys that do not go with a type of catalog."""
_REMEDY_BY_TYPE: Final = {
    "rest": 'set type = "pyiceberg", if PyIceberg is to ask the catalog',
    "pyiceberg": "PyIceberg's own names for such things go into properties",
    "told": "remove it: such a catalog is never asked",
}
_KEYS_EXCLUDED_BY_AUTH: Final = {
    None: _AWS_KEYS | _GOOGLE_KEYS,
    "sigv4": _SECRET_KEYS | _GOOGLE_KEYS | {"scope"},
    "google": _SECRET_KEYS | _AWS_KEYS,
}
"""Keys that do not go with a way of showing who asks."""


def check_catalogs(settings: Settings, sources: SettingsSources) -> Iterator[SfnError]:
    """Everything of the sections `catalogs.NAME` that says where a catalog is, and as whom it is asked."""
    for name, catalog in settings.catalogs.items():
        foreign = catalog.model_fields_set & _KEYS_OF_OTHER_TYPES[catalog.type]
        for key in sorted(foreign):
            yield SfnError(
                sources.location_of(("catalogs", name, key)),
                expected=f"no such key with the type {catalog.type}",
                found="one",
                remedy=_REMEDY_BY_TYPE[catalog.type],
            )
        if catalog.type == "pyiceberg" and not catalog.properties:
            yield SfnError(
                sources.location_of(("catalogs", name, "properties")),
                expected="what PyIceberg is told of the catalog",
                found="nothing",
                remedy='such as properties = { type = "sql", uri = "postgresql+psycopg2://…" }',
            )
        if catalog.type == "rest":
            yield from _check_auth_keys(name, catalog, sources)


def _check_auth_keys(name: str, catalog: CatalogSettings, sources: SettingsSources) -> Iterator[SfnError]:
    """Keys of one way of showing who asks that stand with another."""
    for key in sorted(catalog.model_fields_set & _KEYS_EXCLUDED_BY_AUTH[catalog.auth]):
        way = next(
            (f'auth = "{way}"' for way, keys in (("sigv4", _AWS_KEYS), ("google", _GOOGLE_KEYS)) if key in keys), ""
        )
        with_this = "without auth" if catalog.auth is None else f'with auth = "{catalog.auth}"'
        yield SfnError(
            sources.location_of(("catalogs", name, key)),
            expected=f"no such key {with_this}",
            found="one",
            remedy=f"remove it, or set {way}" if way else "remove one of the two",
        )
    if catalog.external_id is not None and catalog.role_arn is None:
        place = ("catalogs", name, "role_arn")
        remedy = f"set it there or as {variable_name(place)}"
        yield SfnError(
            sources.location_of(place), expected="a value, as external_id is set", found="none", remedy=remedy
        )
