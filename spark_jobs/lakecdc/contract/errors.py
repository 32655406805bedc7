"""The errors of lakecdc. Each says what happened, to which table and what to do, and carries it as attributes too."""

from __future__ import annotations

import re
from typing import Any


class LakecdcError(Exception):
    """Base of every error that lakecdc raises on purpose.

    :param message: what happened, in one paragraph.
    :param table: the table it happened to, ``namespace.name``, if there is one.
    :param hint: what the reader should do now.
    :param attributes: further facts for programs (ids, positions, names); never a secret.
    """

    #: outcome written into the table's report
    outcome = "failed"
    #: kind of failure the operator tells its user: conflict, bad input, cluster or unknown
    failure_class = "unknown"

    def __init__(self, message: str, *, table: str | None = None, hint: str | None = None, **attributes: Any) -> None:
        super().__init__(message)
        self.message = message
        self.table = table
        self.hint = hint
        self.attributes = attributes

    def __str__(self) -> str:
        return about(self.table, self.told)

    @property
    def told(self) -> str:
        """Message and hint, for a place that names the table itself."""
        return f"{self.message} {self.hint}" if self.hint else self.message


def about(table: str | None, text: str) -> str:
    """Return a text about a table that is named in it once.

    :param text: may begin with the table's name.
    """
    if not table or re.match(rf"{re.escape(table)}(?![\w.])", text):
        return text
    return f"{table}: {text}"


class SpecError(LakecdcError):
    """The job spec itself is wrong: an unknown key, a missing value, a wrong type, a literal secret."""

    failure_class = "bad input"


class InputError(LakecdcError):
    """The spec is well formed but what it names cannot be used: no such table, no key, a lost slot, an unknown type."""

    failure_class = "bad input"


class UnsupportedError(LakecdcError):
    """The table has a shape that this job leaves alone on purpose (the reason says which)."""

    outcome = "unsupported"
    failure_class = "bad input"


class ConflictError(LakecdcError):
    """Another writer was faster or is at work; nothing was published and a later try may succeed."""

    outcome = "conflict"
    failure_class = "conflict"


class SourceUnavailableError(LakecdcError):
    """The source or the catalog could not be reached; a retry may succeed."""

    failure_class = "cluster"


class VerificationError(LakecdcError):
    """The proof before publication failed; nothing was published."""


class CommitStateUnknownError(LakecdcError):
    """The catalog did not say whether the commit arrived, and it could not be found out."""

    failure_class = "cluster"
