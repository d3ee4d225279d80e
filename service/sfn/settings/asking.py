"""What does not fit together of how catalogs are asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sfn.errors import SfnError
from sfn.settings.catalogs import CatalogSettings
from sfn.settings.model import Settings
from sfn.settings.sources import Sources, variable

_SECRETS: Final = frozenset({"credential", "credential_file", "oauth2_uri", "token", "token_file"})
_OF_AWS: Final = frozenset({"aws_profile", "external_id", "role_arn", "signing_name", "signing_region"})
_OF_GOOGLE: Final = frozenset({"google_credentials_file"})
_RESTS: Final = (
    _SECRETS | _OF_AWS | _OF_GOOGLE | {"auth", "ca_file", "headers", "scope", "uri", "vended_credentials", "warehouse"}
)
_PYICEBERGS: Final = frozenset({"properties"})

_OTHERS: Final = {"rest": _PYICEBERGS, "pyiceberg": _RESTS, "told": _RESTS | _PYICEBERGS}
"""Keys that do not go with a type of catalog."""
_INSTEAD: Final = {
    "rest": 'set type = "pyiceberg", if PyIceberg is to ask the catalog',
    "pyiceberg": "PyIceberg's own names for such things go into properties",
    "told": "remove it: such a catalog is never asked",
}
_NOT_WITH: Final = {
    None: _OF_AWS | _OF_GOOGLE,
    "sigv4": _SECRETS | _OF_GOOGLE | {"scope"},
    "google": _SECRETS | _OF_AWS,
}
"""Keys that do not go with a way of showing who asks."""


def misasked(settings: Settings, sources: Sources) -> Iterator[SfnError]:
    """Everything of the sections `catalogs.NAME` that says where a catalog is, and as whom it is asked."""
    for name, catalog in settings.catalogs.items():
        foreign = catalog.model_fields_set & _OTHERS[catalog.type]
        for key in sorted(foreign):
            yield SfnError(
                sources.place(("catalogs", name, key)),
                expected=f"no such key with the type {catalog.type}",
                found="one",
                remedy=_INSTEAD[catalog.type],
            )
        if catalog.type == "pyiceberg" and not catalog.properties:
            yield SfnError(
                sources.place(("catalogs", name, "properties")),
                expected="what PyIceberg is told of the catalog",
                found="nothing",
                remedy='such as properties = { type = "sql", uri = "postgresql+psycopg2://…" }',
            )
        if catalog.type == "rest":
            yield from _shown_otherwise(name, catalog, sources)


def _shown_otherwise(name: str, catalog: CatalogSettings, sources: Sources) -> Iterator[SfnError]:
    """Keys of one way of showing who asks that stand with another."""
    for key in sorted(catalog.model_fields_set & _NOT_WITH[catalog.auth]):
        way = next((f'auth = "{way}"' for way, keys in (("sigv4", _OF_AWS), ("google", _OF_GOOGLE)) if key in keys), "")
        with_this = "without auth" if catalog.auth is None else f'with auth = "{catalog.auth}"'
        yield SfnError(
            sources.place(("catalogs", name, key)),
            expected=f"no such key {with_this}",
            found="one",
            remedy=f"remove it, or set {way}" if way else "remove one of the two",
        )
    if catalog.external_id is not None and catalog.role_arn is None:
        place = ("catalogs", name, "role_arn")
        remedy = f"set it there or as {variable(place)}"
        yield SfnError(sources.place(place), expected="a value, as external_id is set", found="none", remedy=remedy)
