"""From a catalog's settings to the adapter that asks it."""

from __future__ import annotations

from typing import Final, Protocol

from sfn.catalogs import Catalog, pyiceberg
from sfn.catalogs.event_sourced import EventCatalog
from sfn.catalogs.metadata import ReadRange
from sfn.catalogs.pyiceberg import PyIcebergCatalog, PyIcebergSettings
from sfn.catalogs.rest import auth
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.settings import RestSettings
from sfn.clock import Clock
from sfn.errors import SfnError
from sfn.settings import CatalogSettings, ConfigurationError, Settings

_DEFAULT_SCOPES: Final = {
    None: "catalog",
    "sigv4": "",
    "google": "https://www.googleapis.com/auth/cloud-platform",
}
"""What tokens are asked for where no setting says; with Google as Iceberg's Java library has it."""


class IdentifiedCatalog(Catalog, Protocol):
    """A catalog that knows whose tables these are."""

    async def identity(self) -> str:
        """Its `catalog_id` in our files.

        Raises:
            Transient, Permanent: scope catalog; it can't be told, or the catalog does not answer.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def build_catalogs(settings: Settings, clock: Clock, read_range: ReadRange) -> dict[str, IdentifiedCatalog]:
    """All configured catalogs, by their names; none has been asked anything yet.

    Args:
        read_range: reads the metadata files of catalogs that can't be asked for what is in them.

    Raises:
        Misconfigured: one can't be asked.
    """
    return {name: _build_catalog(name, one, clock, read_range) for name, one in settings.catalogs.items()}


def check_adapters(settings: Settings) -> None:
    """Refuse settings that only an adapter can tell are wrong.

    Raises:
        Misconfigured: with everything that is wrong.
    """
    problems: list[SfnError] = []
    for name, one in settings.catalogs.items():
        try:
            match one.type:
                case "rest":
                    auth.check_installed(rest_settings(name, one))
                case "pyiceberg":
                    pyiceberg.check_can_open(pyiceberg_settings(name, one))
                case "told":
                    pass
        except ConfigurationError as error:
            problems.extend(error.problems)
        except SfnError as error:
            problems.append(error)
    if problems:
        raise ConfigurationError(problems)


def rest_settings(name: str, catalog: CatalogSettings) -> RestSettings:
    """How a REST catalog is asked.

    Raises:
        Misconfigured: it can't be; no secret is repeated.
    """
    try:
        return RestSettings(
            name=name,
            uri=catalog.uri or "",
            warehouse=catalog.warehouse,
            catalog_id=catalog.catalog_id,
            token=None if catalog.token is None else catalog.token.get_secret_value(),
            token_file=catalog.token_file,
            credential=None if catalog.credential is None else catalog.credential.get_secret_value(),
            credential_file=catalog.credential_file,
            oauth2_uri=catalog.oauth2_uri,
            scope=catalog.scope or _DEFAULT_SCOPES[catalog.auth],
            auth=catalog.auth,
            signing_region=catalog.signing_region,
            signing_name=catalog.signing_name,
            aws_profile=catalog.aws_profile,
            role_arn=catalog.role_arn,
            external_id=catalog.external_id,
            google_credentials_file=catalog.google_credentials_file,
            headers={header: value.get_secret_value() for header, value in catalog.headers.items()},
            ca_file=catalog.ca_file,
        )
    except ValueError as error:
        expected = "settings that a REST catalog can be asked with"
        raise ConfigurationError([SfnError(f"catalogs.{name}", expected=expected, found=str(error))]) from None


def pyiceberg_settings(name: str, catalog: CatalogSettings) -> PyIcebergSettings:
    """How a catalog is asked through PyIceberg.

    Raises:
        SfnError: it can't be; no secret is repeated.
    """
    return PyIcebergSettings(
        name=name,
        properties={key: value.get_secret_value() for key, value in catalog.properties.items()},
        catalog_id=catalog.catalog_id,
    )


def _build_catalog(name: str, catalog: CatalogSettings, clock: Clock, read_range: ReadRange) -> IdentifiedCatalog:
    match catalog.type:
        case "rest":
            return RestCatalog(rest_settings(name, catalog), clock)
        case "pyiceberg":
            return PyIcebergCatalog(pyiceberg_settings(name, catalog))
        case "told":
            return EventCatalog(name, catalog.catalog_id or "", read_range, catalog.allowed_locations)
