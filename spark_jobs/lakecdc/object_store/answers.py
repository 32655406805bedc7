"""Answers of the endpoint: documents of Iceberg's REST interface, and errors by the names that clients know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg import exceptions

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.contract.secrets import mask
from lakecdc.object_store.storage import DeniedError

# clients repeat requests after 429 and 503, and take 409 for "nothing was written": an unknown outcome is 500
_ERRORS: tuple[tuple[type[Exception], int, str], ...] = (
    (exceptions.NoSuchTableError, 404, "NoSuchTableException"),
    (exceptions.NoSuchNamespaceError, 404, "NoSuchNamespaceException"),
    (exceptions.TableAlreadyExistsError, 409, "AlreadyExistsException"),
    (exceptions.NamespaceAlreadyExistsError, 409, "AlreadyExistsException"),
    (exceptions.NamespaceNotEmptyError, 409, "NamespaceNotEmptyException"),
    (exceptions.CommitFailedException, 409, "CommitFailedException"),
    (exceptions.ForbiddenError, 403, "ForbiddenException"),
    (exceptions.UnauthorizedError, 401, "NotAuthorizedException"),
    (UnsupportedError, 406, "UnsupportedOperationException"),
    (DeniedError, 403, "ForbiddenException"),
    (InputError, 400, "BadRequestException"),
)
_LONGEST_MESSAGE = 4_000


@dataclass(frozen=True)
class Answer:
    """A status and the text of a JSON document; an empty text sends no body."""

    status: int
    text: str = ""


DONE = Answer(204)


def document(value: Mapping[str, Any]) -> Answer:
    """Answer with a document."""
    return Answer(200, json.dumps(value))


def table(metadata: str, location: str | None) -> Answer:
    """Answer with a table's metadata, as stored.

    :param location: of the metadata; None for a table that a later commit creates.
    """
    return Answer(200, f'{{"metadata-location": {json.dumps(location)}, "metadata": {metadata}}}')


def error(status: int, kind: str, message: str) -> Answer:
    """Answer with an error, without secrets."""
    content = {"message": mask(message, _LONGEST_MESSAGE), "type": kind, "code": status}
    return Answer(status, json.dumps({"error": content}))


def failure(raised: Exception, *, is_write: bool) -> Answer:
    """Answer with the error that a request raised; after an unexpected one the outcome of a write is unknown."""
    for known, status, kind in _ERRORS:
        if isinstance(raised, known):
            return error(status, kind, str(raised))
    kind = "CommitStateUnknownException" if is_write else "InternalServerError"
    return error(500, kind, f"{type(raised).__name__}: {raised}")
