"""The interface to Iceberg's code: make a table's new metadata from a client's request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from lakecdc.contract.errors import InputError

#: an object of Iceberg's REST interface: a requirement, an update, a request
Document = Mapping[str, Any]


class Applier(Protocol):
    """Iceberg's core in a JVM, or pyiceberg; both get and return a table's metadata as the text of its JSON."""

    def create(self, request: Document, location: str) -> str:
        """Return the first metadata of a table.

        :param request: a ``CreateTableRequest``.
        :param location: the table's.
        """
        ...

    def apply(
        self, text: str, metadata_location: str, requirements: Sequence[Document], updates: Sequence[Document]
    ) -> str:
        """Return a table's metadata with updates; the text as it is if they change nothing.

        :param text: its current metadata; empty for a table that is about to be created (``assert-create``).
        :param metadata_location: where that is, which becomes an entry of the new ``metadata-log``; empty likewise.
        :raises pyiceberg.exceptions.CommitFailedException: a requirement does not hold.
        :raises UnsupportedError: the metadata has what this code would drop; the message names it.
        :raises InputError: an update is not valid.
        """
        ...


def check_creation(requirements: Sequence[Document]) -> None:
    """Check that updates which create a table require that, and nothing else."""
    if not requirements or any(requirement.get("type") != "assert-create" for requirement in requirements):
        raise InputError("Updates that create a table take the requirement assert-create alone.")
