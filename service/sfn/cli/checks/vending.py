"""As whom a catalog is asked, and whether it vends credentials for its tables' stores."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

from sfn.app.catalogs import rest_settings
from sfn.catalogs import CredentialVendor
from sfn.cli.checks.findings import CheckFinding, ok_finding, warning_finding
from sfn.clock import format_duration
from sfn.domain.catalog_answer import NoSuchTable, VendedCredential
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import LocationRefused
from sfn.publish.policy import OnDrop
from sfn.settings.sections import CatalogSettings
from sfn.storage import StoreRouter


def describe_auth(name: str, catalog: CatalogSettings) -> str:
    """How a catalog is told who asks, as the rest of a sentence; nothing where it is not, or PyIceberg does it."""
    match catalog.auth:
        case "sigv4":
            region, service = rest_settings(name, catalog).signing
            return f" with AWS's signatures for {service} in {region}"
        case "google":
            return " with Google's tokens"
        case None if catalog.token or catalog.token_file:
            return " with a bearer token"
        case None if catalog.credential or catalog.credential_file:
            return " with OAuth2 client credentials"
        case None:
            return " with a user and a password" if urlsplit(catalog.uri or "").username else ""


async def vending_finding(
    where: str, catalog: CredentialVendor, table: TableIdentifier, now: datetime
) -> CheckFinding | None:
    """What a catalog vends for a table, None where it has no such table; raises trouble as the catalog does.

    Args:
        where: the table's place in the findings.
        now: from which it is counted how long that is good.
    """
    grants = await catalog.vended_credentials(table)
    if isinstance(grants, NoSuchTable):
        return None
    if not grants:
        remedy = (
            "let the catalog vend them (a role that it may assume, and a grant for our principal to write to the "
            "table's place), or set vended_credentials = false"
        )
        return warning_finding(where, "no credentials are vended", remedy)
    return ok_finding(
        where, f"credentials are vended: {', '.join(_describe_credential(grant, now) for grant in grants)}"
    )


def dropped_files_finding(
    where: str, on_drop: OnDrop, own: StoreRouter, places: Sequence[str], *, has_stores: bool
) -> CheckFinding:
    """What becomes of the files of dropped tables, for which nothing is vended.

    Args:
        where: the catalog's place in the findings.
        own: the configured stores.
        places: canonical locations of tables; none where none could be loaded.
        has_stores: there are any of those stores.
    """
    where = f"{where}.on_drop"
    if on_drop is OnDrop.KEEP:
        return ok_finding(where, "nothing is vended for a dropped table: its files stay as they are, as on_drop says")
    bare = [place for place in places if not _covers(own, place)]
    if has_stores and not places:
        said = "its files are reached where a store covers them; no table tells yet whether one does"
        return ok_finding(where, f"nothing is vended for a dropped table: {said}")
    if has_stores and not bare:
        return ok_finding(
            where, "nothing is vended for a dropped table: its files are reached with its store's own keys"
        )
    remedy = 'configure a store that covers them, with keys of its own: [stores.NAME] prefix; or set on_drop = "keep"'
    place = bare[0] if bare else "its place"
    text = f"nothing is vended for a dropped table, and no store covers {place}: its files there can't be ended"
    return warning_finding(where, text, remedy)


def _covers(own: StoreRouter, place: str) -> bool:
    try:
        own.store_for(place)
    except LocationRefused:
        return False
    return True


def _describe_credential(grant: VendedCredential, now: datetime) -> str:
    place = grant.prefix or "wherever the table lies"
    if grant.expires_at is None:
        return f"for {place}, not saying until when"
    return f"for {place}, good for {format_duration(grant.expires_at - now)}"
