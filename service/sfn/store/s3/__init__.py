"""Files on S3, and on what speaks its protocol."""

from sfn.store.s3.addresses import AddressBook
from sfn.store.s3.objects import MADE_UP, S3Objects
from sfn.store.s3.terms import S3Terms

__all__ = ["MADE_UP", "AddressBook", "S3Objects", "S3Terms"]
