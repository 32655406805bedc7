"""Lists of what dry runs would take away from tables, for a person to agree to.

A list is a document beside the report, one JSON object a line. A job that is held to one takes only what it finds again
and what has the same line there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lakecdc.contract.errors import InputError
from lakecdc.runtime import documents

if TYPE_CHECKING:
    from lakecdc.contract.approval import Approved
    from lakecdc.contract.spec import JobSpec

_IN_MEMORY = 32 * 1024**2


def _spool() -> SpooledTemporaryFile[bytes]:
    # most lists are short, that of a table that was never cleaned may have millions of lines
    return SpooledTemporaryFile(_IN_MEMORY, "w+b")


class Findings:
    """The list of one table, in memory that does not grow with it."""

    def __init__(self) -> None:
        self._lines = _spool()
        self._digest = hashlib.sha256()
        self._is_empty = True

    def add(self, entry: Mapping[str, Any]) -> None:
        """Note one thing that would be taken away."""
        line = line_of(entry)
        self._lines.write(line)
        self._digest.update(line)
        self._is_empty = False

    def leave(self, spec: JobSpec, table: str) -> dict[str, Any]:
        """Write the list beside the report.

        :return: ``findings`` for the report, with ``uri`` and ``sha256`` of the list; nothing if there is none, or no
            place for it.
        """
        if self._is_empty or spec.documents is None:
            return {}
        # a name that no two tables share, and that no store takes amiss
        uri = f"{spec.documents}/findings-{spec.job}-{quote(table, safe='').replace('%', '=')}.jsonl"
        self._lines.seek(0)
        documents.write_from(self._lines, uri)
        return {"findings": {"uri": uri, "sha256": self._digest.hexdigest()}}


def line_of(entry: Mapping[str, Any]) -> bytes:
    """The one line that an entry has in every list."""
    return json.dumps(entry, sort_keys=True).encode() + b"\n"


def approved_lines(approved: Approved, table: str) -> Iterator[bytes]:
    """Lines of a list that a person has agreed to, none before all of it has been compared with its digest.

    :param table: that the list is of.
    :raises InputError: it cannot be read, or is no longer what it was.
    """
    with _spool() as lines:
        documents.read_into(lines, approved.uri)
        lines.seek(0)
        digest = hashlib.file_digest(lines, "sha256").hexdigest()
        if digest != approved.sha256:
            raise InputError(
                f"The list {approved.uri} is not the one that was approved: its digest is {digest}.",
                table=table,
                hint="Nothing was taken away. Make a dry run anew, and have its list approved.",
            )
        lines.seek(0)
        yield from lines
