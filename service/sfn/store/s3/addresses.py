"""Where each bucket answers: AWS's own rules of endpoints, as botocore carries them."""

from __future__ import annotations

from functools import cache

from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader
from botocore.session import Session

from sfn.store.objects import Kind, Refused
from sfn.store.s3.terms import S3Terms

_ANYWHERE = "us-east-1"
"""The region of whom nobody told one: services of one region take it, and AWS then tells the bucket's own."""
_KEY = "k"


@cache
def _loader() -> Loader:
    """Keeps the descriptions of services, which take most of the time to read."""
    return create_loader()


class Addresses:
    """The base URLs of buckets, in one region.

    It reads files and takes a tenth of a second to make: for a thread.

    Args:
        terms: where the buckets are.
        region: other than the terms'; None for theirs.

    Attributes:
        region: that requests are signed for.
    """

    def __init__(self, terms: S3Terms, region: str | None = None) -> None:
        identity = terms.identity
        session = Session(profile=identity.profile if identity is not None else None)
        session.register_component("data_loader", _loader())
        self.region: str = region or terms.region or session.get_config_variable("region") or _ANYWHERE
        style = terms.path_style if terms.path_style is not None else (True if terms.endpoint is not None else None)
        styled = {} if style is None else {"addressing_style": "path" if style else "virtual"}
        self._client = session.create_client(
            "s3",
            region_name=self.region,
            endpoint_url=terms.endpoint,
            config=Config(signature_version=UNSIGNED, s3=styled),
        )

    def of(self, bucket: str) -> str:
        """The URL of a bucket, with a slash at its end.

        Raises:
            Refused: no bucket can have that name.
        """
        try:
            url: str = self._client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": _KEY})
        except BotoCoreError as error:
            raise Refused(Kind.NO_PLACE, f"the bucket name {bucket!r} ({type(error).__name__})") from error
        return url.partition("?")[0].removesuffix(_KEY)
