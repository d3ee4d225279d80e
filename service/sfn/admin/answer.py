"""What the operators' answers share: JSON objects, and which table is meant."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from sfn.words import Subject, TableName


class Answer(BaseModel):
    """An object of an answer."""

    model_config = ConfigDict(frozen=True)


class Identified(Answer):
    """A table, or a whole catalog: then without namespace and name."""

    catalog: str | None
    namespace: Sequence[str] | None
    name: str | None
    table: str | None = Field(description="levels and name, joined by dots")

    @staticmethod
    def fields(subject: Subject | None) -> dict[str, object]:
        """Its values of a subject."""
        if isinstance(subject, TableName):
            parts = {"namespace": subject.namespace, "name": subject.name, "table": subject.identifier}
            return {"catalog": subject.catalog, **parts}
        catalog = subject.catalog if subject is not None else None
        return {"catalog": catalog, "namespace": None, "name": None, "table": None}
