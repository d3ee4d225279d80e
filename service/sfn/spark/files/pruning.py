"""Which files have none of the rows that are asked for, as their manifests say."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.manifest import ManifestEntry
from pyiceberg.schema import Schema

from sfn.spark.files.manifests import is_data


def pruned(entries: Sequence[ManifestEntry], which: BooleanExpression, schema: Schema) -> list[ManifestEntry]:
    """The files that may have such rows, and all delete files.

    Raises:
        ValueError: the filter does not fit the schema.
    """
    try:
        # PyIceberg's public scans plan with it too, but can't be asked for files and deletes by themselves.
        evaluator = _InclusiveMetricsEvaluator(schema, which, case_sensitive=True)
    except (ValueError, TypeError) as error:
        raise ValueError(f"a row_filter that fits the table's columns: {error}") from error
    return [one for one in entries if not is_data(one.data_file) or evaluator.eval(one.data_file)]
