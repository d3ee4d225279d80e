"""Files on Google Cloud Storage."""

from sfn.store.gcs.objects import MADE_UP, GcsObjects
from sfn.store.gcs.terms import GcsTerms

__all__ = ["MADE_UP", "GcsObjects", "GcsTerms"]
