"""List what dry runs would remove from tables, for approval.

A list is a document beside the report, one JSON object per line. A job with an approved list removes only what it lists
again with the same line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from tempfile import SpooledTemporaryFile
from typing import Any
from urllib.parse import quote

from lakecdc.contract.errors import InputError
from lakecdc.contract.protection import Approved
from lakecdc.contract.spec import JobSpec
from lakecdc.runtime import documents

#: hint for work that a list does not approve
NOT_APPROVED = "Nothing was removed. Make another dry run and have its list approved."
_IN_MEMORY = 32 * 1024**2


def spool() -> SpooledTemporaryFile[bytes]:
    # most lists are short, but a table that was never cleaned may have millions of lines
    return SpooledTemporaryFile(_IN_MEMORY, "w+b")


class Findings:
    """The list of one table, with bounded memory."""

    def __init__(self) -> None:
        self._lines = spool()
        self._digest = hashlib.sha256()

    def add(self, entry: Mapping[str, Any]) -> None:
        line = line_of(entry)
        self._lines.write(line)
        self._digest.update(line)

    def write(self, spec: JobSpec, table: str) -> dict[str, Any]:
        """Write the list beside the report, and return ``findings``, or nothing if it is empty or has no place."""
        if not self._lines.tell() or spec.documents is None:
            return {}
        # a unique name per table that every store accepts
        uri = f"{spec.documents}/findings-{spec.job}-{quote(table, safe='').replace('%', '=')}.jsonl"
        self._lines.seek(0)
        documents.write_from(self._lines, uri)
        return {"findings": {"uri": uri, "sha256": self._digest.hexdigest()}}


def approved_entry(approved: Approved, table: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the only entry of an approved list; raise InputError if its facts differ or the list was changed."""
    (line,) = approved_lines(approved, table)
    listed: dict[str, Any] = json.loads(line)
    for name, value in facts.items():
        if listed[name] != value:
            raise InputError(
                f"Its {name} is {value!r}, but the approved list has {listed[name]!r}.",
                table=table,
                hint=NOT_APPROVED,
            )
    return listed


def line_of(entry: Mapping[str, Any]) -> bytes:
    """Return the line of an entry, the same in every list."""
    return json.dumps(entry, sort_keys=True).encode() + b"\n"


def approved_lines(approved: Approved, table: str) -> Iterator[bytes]:
    """Yield the lines of an approved list; raise InputError before the first if it cannot be read or was changed."""
    with spool() as lines:
        documents.read_into(lines, approved.uri)
        lines.seek(0)
        digest = hashlib.file_digest(lines, "sha256").hexdigest()
        if digest != approved.sha256:
            raise InputError(
                f"The list {approved.uri} is not the approved one: its digest is {digest}.",
                table=table,
                hint=NOT_APPROVED,
            )
        lines.seek(0)
        yield from lines
