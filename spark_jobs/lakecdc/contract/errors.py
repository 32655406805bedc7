"""Errors of lakecdc: each names the event, the table and what to do, also as attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# SQL standard: invalid authorization specification, invalid catalog name
_STATES = re.compile(r"28\w{3}|3D000")
# for messages without a state: of libpq before a session exists, drivers of catalogs, SASL
_TEXTS = re.compile(
    r"password authentication failed|no password supplied|(database|role) \"[^\"]*\" does not exist"
    r"|Access denied for user|Unknown database|path to '[^']*': '[^']*' does not exist"
    r"|NotAuthorizedException|SASL authentication error|SaslAuthenticationException",
    re.IGNORECASE,
)


class LakecdcError(Exception):
    """Base of the errors that lakecdc raises on purpose.

    :param message: what happened, in one paragraph.
    :param table: ``namespace.name``, if it happened to a table.
    :param hint: what to do now.
    :param attributes: further facts for programs (ids, positions, names); never a secret.
    """

    #: outcome written into the table's report
    outcome = "failed"
    #: conflict, bad input, cluster or unknown
    failure_class = "unknown"

    def __init__(self, message: str, *, table: str | None = None, hint: str | None = None, **attributes: Any) -> None:
        super().__init__(message)
        self.message = message
        self.table = table
        self.hint = hint
        self.attributes = attributes

    def __str__(self) -> str:
        return about(self.table, self.text)

    @property
    def text(self) -> str:
        """Message and hint, for places that already name the table."""
        return f"{self.message} {self.hint}" if self.hint else self.message


@contextmanager
def concerning(table: str) -> Iterator[None]:
    """Name the table in errors that name none."""
    try:
        yield
    except LakecdcError as error:
        error.table = error.table or table
        raise


def about(table: str | None, text: str) -> str:
    """Return a text about a table, beginning with its name once."""
    if not table or re.match(rf"{re.escape(table)}(?![\w.])", text):
        return text
    return f"{table}: {text}"


class SpecError(LakecdcError):
    """The job spec is wrong: an unknown key, a missing value, a wrong type, a literal secret.

    Remedy: Correct what the message names, then clear the task. ``lakecdc.schema.json`` lets an editor find it earlier.
    """

    failure_class = "bad input"


class InputError(LakecdcError):
    """The spec names something that cannot be used: no such table, no key, a lost slot, an unknown type.

    Remedy: Follow the message, then clear the task. ``airflow lakecdc check`` finds most of these before a run.
    """

    failure_class = "bad input"


class UnsupportedError(LakecdcError):
    """The job skips tables of this shape on purpose; the reason names it.

    Remedy: Change the table or the option that the reason names, or exclude the table from the job.
    """

    outcome = "unsupported"
    failure_class = "bad input"


class ConflictError(LakecdcError):
    """Another writer was faster or is at work; nothing was published and a later try may succeed.

    Remedy: Wait for the retry. If conflicts continue, put the tasks that share the table into a pool with one slot.
    """

    outcome = "conflict"
    failure_class = "conflict"


class SourceUnavailableError(LakecdcError):
    """The source or the catalog could not be reached; a retry may succeed.

    Remedy: Check that the worker reaches the address in the message; the retry continues from the table's position.
    """

    failure_class = "cluster"


class VerificationError(LakecdcError):
    """The proof before publication failed; nothing was published.

    Remedy: Run the job again with ``keep_failed_files``, and report a bug with the files that the report lists.
    """


class CommitStateUnknownError(LakecdcError):
    """The catalog did not confirm the commit, and its outcome is unknown.

    Remedy: Run the job again: it looks at the table first, and applies no batch twice.
    """

    failure_class = "cluster"


def is_refusal(text: str, state: str | None = None) -> bool:
    """Check whether a server's message or SQLSTATE refuses a wrong login, database or folder: no retry helps."""
    return bool(_STATES.fullmatch(state or "") or _TEXTS.search(text))
