"""Problem documents (RFC 9457): what every error of our own routes looks like."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Final

import msgspec

from sfn.errors import SfnError

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"


def problem_document(status: int, detail: str, *, pointer: str | None = None) -> bytes:
    """A problem document of type `about:blank`.

    Args:
        status: HTTP status code.
        detail: what is wrong, for people.
        pointer: the wrong part of the request's body, a JSON pointer as URI fragment.
    """
    content: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if pointer is not None:
        content["errors"] = [{"detail": detail, "pointer": pointer}]
    return msgspec.json.encode(content)


def problem_detail(error: SfnError) -> str:
    """What was expected and found, without the place: that may be a path on this machine."""
    text = f"expected {error.expected}, found {error.found}"
    return f"{text}; {error.remedy}" if error.remedy else text


def retry_after_seconds(retry_after: float | None) -> int:
    """The value of `Retry-After` (RFC 9110, section 10.2.3): whole seconds, at least 1."""
    return max(1, math.ceil(retry_after or 1))
