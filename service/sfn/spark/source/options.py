"""What `.option(…)` says to the data sources. Spark's option names have no case."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sfn.errors import suggest_name
from sfn.spark.asked import ReadRequest, make_read_request

PATH: Final = "path"
"""What Spark calls the argument of `load`."""

STORAGE: Final = "secretStorageOptions"
"""What a store's driver is given. Spark shows an option in plans and in its log of events, unless its name says that it
is a secret (`spark.redaction.regex`)."""

_TABLE: Final = ("table", "uuid", "allowed", STORAGE)
"""Options of both sources."""
_SNAPSHOT_ID: Final = re.compile(r"\d+")


class SourceOptions:
    """The options of one read, by their names.

    Args:
        given: as Spark gives them.
        known: those that the source has, beside those of both.
        source: its name, for messages.

    Raises:
        ValueError: one is not known; the message names the nearest.
    """

    def __init__(self, given: Mapping[str, str], known: Sequence[str], source: str) -> None:
        self._source = source
        names = {name.lower(): name for name in (PATH, *_TABLE, *known)}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in names:
                near = suggest_name(name, list(names))
                raise ValueError(f"an option of format({source!r}): {name!r} is none; {_cased(near, names)}")
            self._values[names[name.lower()]] = value

    def get(self, name: str) -> str | None:
        """What an option says; None where it was not given."""
        return self._values.get(name)

    @property
    def directory(self) -> str:
        """What `load` was given.

        Raises:
            ValueError: nothing, or several paths.
        """
        path = self.get(PATH)
        if not path:
            raise ValueError(f"a table's directory: spark.read.format({self._source!r}).load(directory)")
        return path

    def names(self, option: str) -> tuple[str, ...]:
        """The names that an option lists: separated by commas, or a JSON array where one has a comma.

        Raises:
            ValueError: it is no such list, or empty.
        """
        text = (self.get(option) or "").strip()
        names = _json(option, text, list) if text.startswith("[") else [name.strip() for name in text.split(",")]
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"option {option}: names separated by commas, or a JSON array of them: {text!r}")
        return tuple(names)

    def flag(self, option: str, *, default: bool) -> bool:
        """Whether an option is `true`.

        Raises:
            ValueError: it is neither that nor `false`.
        """
        text = self.get(option)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise ValueError(f"option {option}: true or false: {text!r}")
        return text.lower() == "true"

    @property
    def request(self) -> ReadRequest:
        """What of which table they ask for.

        Raises:
            ValueError: one of them has no such form.
        """
        as_of = self.get("asOf")
        storage = self.get(STORAGE)
        return make_read_request(
            self.directory,
            self.get("table"),
            self.get("uuid"),
            self.get("ref"),
            None if as_of is None else _as_of(as_of),
            allowed=self.names("allowed") if self.get("allowed") is not None else (),
            storage_options=None if storage is None else _json(STORAGE, storage, dict),
        )


def _as_of(text: str) -> int | str:
    """As `sfn.spark.read` takes it."""
    return int(text) if _SNAPSHOT_ID.fullmatch(text) else text


def _json(option: str, text: str, kind: type) -> Any:  # noqa: ANN401 - any JSON
    expected = f"a JSON {'object' if kind is dict else 'array'}"
    try:
        value = json.loads(text)
    except ValueError as error:
        # The text may hold secrets.
        raise ValueError(f"option {option}: {expected}, as json.dumps writes it: {error}") from None
    if not isinstance(value, kind):
        raise ValueError(f"option {option}: {expected}, not {type(value).__name__}")
    return value


def _cased(text: str, names: Mapping[str, str]) -> str:
    """The names in a text as they are documented."""
    return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)
