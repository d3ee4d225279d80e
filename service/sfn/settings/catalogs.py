"""The sections `catalogs.NAME`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticKnownError

from sfn.publish.policy import MAX_COMMIT_FILES
from sfn.settings.kinds import (
    AtLeastOne,
    File,
    HttpHeaders,
    Prefix,
    Prefixes,
    Properties,
    PublishInterval,
    Secret,
    Text,
    Texts,
    Token,
    Url,
)
from sfn.settings.quantities import Duration, PositiveDuration
from sfn.settings.section import Section
from sfn.sfnfile.naming import MAIN_BRANCH


def _require_uri_for_rest(value: str | None, info: ValidationInfo) -> str | None:
    if value is None and info.data.get("type") == "rest":
        raise PydanticKnownError("missing")
    return value


class CatalogSettings(Section):
    """A catalog whose tables get files.

    Attributes:
        type: how it is spoken to: `told` is not at all, and then its events are the truth.
        properties: with `pyiceberg` all that PyIceberg is told, by its own names; then there are none of those up to
            `vended_credentials`.
        uri: where its REST API begins, without `/v1`; may hold a user and a password. With `rest` it must be there.
        warehouse: which warehouse of that server.
        catalog_id: its identity in our files, None for one derived from where it is.
        ca_file: certificates (PEM) that are trusted instead of the system's; read again when it changes.
        headers: sent with every request.
        token: bearer token; `token_file` a file with it, read again when it changes.
        credential: OAuth2 client credentials; `credential_file` a file with them, read for each new token.
        oauth2_uri: where tokens are to be had.
        scope: OAuth2 scope.
        auth: who asks is shown by AWS's signatures or Google's tokens; None for by a token or credential, if at all.
        signing_region: of what AWS's signatures are for; None for the one in the host of `uri`.
        signing_name: the service, `glue` or `s3tables`; None likewise.
        aws_profile: of AWS's shared files; None for the standard chain.
        role_arn: assumed by whoever that is, with an `external_id` if it asks for one.
        google_credentials_file: key of a service account; None for the application's default credentials.
        vended_credentials: whether stores are opened by what the catalog gives for each table.
        replica_lag: how long an answer may be behind, with the clock skew of our hosts.
        absence_delay: how long a table must be absent before it counts as dropped.
        max_drops: drops and steps back that pass in an hour; None for the greater of 10 and 1 % of the tables, and of
            drops fewer than half of the tables, or a single one.
        include: globs of the tables that are published; none is all.
        exclude: globs of those that are not.
        allowed_locations: canonical prefixes that locations must lie below; none is any below a store.
        version_hint: whether to keep `version-hint.text`.
        on_drop: what becomes of a dropped table's files.
        expire_after: how long a tombstone stays.
        refresh_after: how long a file goes unwritten.
        min_publish_interval: from one publish of a table to the next.
        naming: what the SFN files are called.
        placement: where they lie.
        root: with the placement `root`, the folder in which each table has one.
        branches: globs of the branches that get files.
        keep: with the naming `ordinal`, how many files of commits stay at least.
        keep_for: with that naming, how long they do.
    """

    type: Literal["rest", "pyiceberg", "told"] = "rest"
    catalog_id: Text | None = None
    properties: Properties = Field(default_factory=dict)
    uri: Annotated[Url | None, AfterValidator(_require_uri_for_rest)] = Field(
        default=None, repr=False, validate_default=True
    )
    warehouse: Text | None = None
    ca_file: File | None = None
    headers: HttpHeaders = Field(default_factory=dict)
    token: Token | None = None
    token_file: File | None = None
    credential: Secret | None = None
    credential_file: File | None = None
    oauth2_uri: Url | None = Field(default=None, repr=False)
    scope: Text | None = None
    auth: Literal["sigv4", "google"] | None = None
    signing_region: Text | None = None
    signing_name: Text | None = None
    aws_profile: Text | None = None
    role_arn: Text | None = None
    external_id: Text | None = None
    google_credentials_file: File | None = None
    vended_credentials: bool = False
    replica_lag: Duration = timedelta(seconds=60)
    absence_delay: Duration = timedelta(minutes=10)
    max_drops: Annotated[int, Field(ge=0)] | None = None
    include: Texts = ()
    exclude: Texts = ()
    allowed_locations: Prefixes = ()
    version_hint: Literal["auto", "off"] = "auto"
    on_drop: Literal["tombstone", "delete", "keep"] = "tombstone"
    expire_after: PositiveDuration = timedelta(days=7)
    refresh_after: PositiveDuration = timedelta(hours=8)
    min_publish_interval: PublishInterval = timedelta(seconds=1)
    naming: Literal["identifier", "ordinal", "uuid"] = "identifier"
    placement: Literal["inside", "alongside", "root"] = "inside"
    root: Prefix | None = None
    branches: Texts = (MAIN_BRANCH,)
    keep: Annotated[AtLeastOne, Field(le=MAX_COMMIT_FILES)] = 100
    keep_for: Duration = timedelta(hours=24)

    @property
    def is_event_only(self) -> bool:
        """Whether nobody can ask it, or list it: its events are the truth."""
        return self.type == "told"
