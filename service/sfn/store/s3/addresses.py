"""Where each bucket answers: AWS's own rules of endpoints, as botocore carries them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import anyio
from anyio import to_thread
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader
from botocore.session import Session

from sfn.store.objects import ErrorKind, RequestFailed
from sfn.store.s3.terms import S3Options

_DEFAULT_REGION = "us-east-1"
"""The region of whom nobody told one: services of one region take it, and AWS then tells the bucket's own."""
_PLACEHOLDER_KEY = "k"


@cache
def _loader() -> Loader:
    """Keeps the descriptions of services, which take most of the time to read."""
    return create_loader()


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """What an endpoint depends on, as of `S3Options`; `profile` as of `sfn.aws_auth.AwsIdentity`."""

    endpoint: str | None
    region: str | None
    path_style: bool | None
    profile: str | None

    @classmethod
    def from_options(cls, options: S3Options) -> EndpointOptions:
        """Where terms lead."""
        profile = options.identity.profile if options.identity is not None else None
        return cls(options.endpoint, options.region, options.path_style, profile)


class BucketEndpoints:
    """The addresses of all places, each of them made once, in a thread: it takes a tenth of a second."""

    def __init__(self) -> None:
        self._making = anyio.Lock()
        self._made: dict[EndpointOptions, BucketAddresses] = {}

    async def addresses_for(self, endpoint: EndpointOptions) -> BucketAddresses:
        """Of one place.

        Raises:
            Refused: there is no such profile, or AWS's own configuration can't be read.
        """
        async with self._making:
            if endpoint not in self._made:
                self._made[endpoint] = await to_thread.run_sync(_build_addresses, endpoint)
        return self._made[endpoint]


class BucketAddresses:
    """The base URLs of buckets at one place.

    Attributes:
        region: that requests are signed for.
    """

    def __init__(self, endpoint: EndpointOptions) -> None:
        session = Session(profile=endpoint.profile)
        session.register_component("data_loader", _loader())
        self.region: str = endpoint.region or session.get_config_variable("region") or _DEFAULT_REGION
        style = (
            endpoint.path_style
            if endpoint.path_style is not None
            else (True if endpoint.endpoint is not None else None)
        )
        styled = {} if style is None else {"addressing_style": "path" if style else "virtual"}
        self._client = session.create_client(
            "s3",
            region_name=self.region,
            endpoint_url=endpoint.endpoint,
            config=Config(signature_version=UNSIGNED, s3=styled),
        )
        # botocore gives presigned URLs the global address, which does not lead to the regions that came after March
        # 2019, nor for some hours to new buckets.
        self._client.meta.events.register("provide-client-params.s3.GetObject", _regional)

    def bucket_url(self, bucket: str) -> str:
        """The URL of a bucket, with a slash at its end.

        Raises:
            Refused: no bucket can have that name.
        """
        try:
            url: str = self._client.generate_presigned_url(
                "get_object", Params={"Bucket": bucket, "Key": _PLACEHOLDER_KEY}
            )
        except BotoCoreError as error:
            raise RequestFailed(ErrorKind.NO_BUCKET, f"the bucket name {bucket!r} ({type(error).__name__})") from error
        return url.partition("?")[0].removesuffix(_PLACEHOLDER_KEY)


def _regional(context: dict[str, object], **_: object) -> None:
    context["use_global_endpoint"] = False


def _build_addresses(endpoint: EndpointOptions) -> BucketAddresses:
    try:
        return BucketAddresses(endpoint)
    except BotoCoreError as error:
        named = f"profile {endpoint.profile}" if endpoint.profile else "AWS's own configuration"
        remedy = "correct `profile`, AWS_PROFILE or the shared files (`aws configure list` shows what they say)"
        raise RequestFailed(ErrorKind.NO_ENDPOINT, f"{named} without them ({error})", remedy) from error
