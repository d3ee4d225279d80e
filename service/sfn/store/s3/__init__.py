"""Files on S3, and on what speaks its protocol."""

from sfn.store.s3.addresses import BucketEndpoints
from sfn.store.s3.objects import IMPOSSIBLE_ETAG, S3Client
from sfn.store.s3.terms import S3Options

__all__ = ["IMPOSSIBLE_ETAG", "BucketEndpoints", "S3Client", "S3Options"]
