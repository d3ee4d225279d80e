"""Files on Google Cloud Storage."""

from sfn.store.gcs.objects import IMPOSSIBLE_GENERATION, GcsClient
from sfn.store.gcs.terms import GcsOptions

__all__ = ["IMPOSSIBLE_GENERATION", "GcsClient", "GcsOptions"]
