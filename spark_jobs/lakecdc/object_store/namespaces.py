"""Create, change, drop and list namespaces, even while tables are created in them.

A creator of a table writes its marker and then checks that the namespace is live. A dropper of a namespace records that
and then checks for markers. So one of the two sees the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from lakecdc.object_store.names import Directory, Document, Entry, Names
from lakecdc.object_store.storage import DeniedError, Storage


class Namespaces:
    """The namespaces of a warehouse."""

    def __init__(self, storage: Storage, warehouse: str) -> None:
        self._names = Directory(storage, warehouse, "namespace")
        self._tables = Directory(storage, warehouse, "table")

    def children(self, parent: Names = ()) -> list[Names]:
        """Return the namespaces directly below another one.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: the parent does not exist.
        """
        if parent:
            self.look_up(parent)
        return self._below(parent)

    def _below(self, parent: Names) -> list[Names]:
        depth = len(parent) + 1
        return [each for each in self._names.listed() if len(each) == depth and each[:-1] == parent]

    def create(self, namespace: Names, properties: Mapping[str, str]) -> None:
        """Create a namespace.

        :raises pyiceberg.exceptions.NamespaceAlreadyExistsError: it exists.
        :raises pyiceberg.exceptions.NoSuchNamespaceError: the one above it does not exist.
        :raises pyiceberg.exceptions.CommitFailedException: another writer creates it.
        """
        from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError

        if namespace[:-1]:
            self.require(namespace[:-1])
        if (entry := self._settle(namespace)) is not None and entry.document.state != "dropped":
            raise NamespaceAlreadyExistsError(f"The namespace {'.'.join(namespace)} exists.")
        write = str(uuid.uuid4())
        begun = Document("creating", write, properties=dict(properties))
        if not self._names.write(namespace, entry, begun, write):
            raise CommitFailedException(f"Another writer creates the namespace {'.'.join(namespace)}.")
        self._settle(namespace)
        if namespace[:-1] and not self.is_live(namespace[:-1]):
            self.drop(namespace)
            self.require(namespace[:-1])

    def require(self, namespace: Names) -> Entry:
        """Return the document of a namespace.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: it does not exist.
        """
        return _existing(namespace, self._live(namespace) if namespace else None)

    def look_up(self, namespace: Names) -> Entry:
        """Return the document of a namespace for a read, which writes nothing if the storage is read-only.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: it does not exist.
        """
        with suppress(DeniedError):
            return self.require(namespace)
        entry = self._names.read(namespace)
        state = entry.document.state if entry else "dropped"
        goes = state == "dropping" and not self._is_used(namespace)
        return _existing(namespace, None if goes or state == "dropped" else entry)

    def is_live(self, namespace: Names) -> bool:
        """Check whether a namespace exists and is not being dropped."""
        return self._live(namespace) is not None

    def exists(self, namespace: Names) -> bool:
        """Check whether a namespace exists for a read; see :meth:`look_up`."""
        from pyiceberg.exceptions import NoSuchNamespaceError

        with suppress(NoSuchNamespaceError):
            self.look_up(namespace)
            return True
        return False

    def _live(self, namespace: Names) -> Entry | None:
        entry = self._settle(namespace)
        return entry if entry is not None and entry.document.state == "live" else None

    def update(self, namespace: Names, removals: Collection[str], updates: Mapping[str, str]) -> None:
        """Change the properties of a namespace; retry while other writers are faster.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: it does not exist.
        """
        while True:
            entry = self.require(namespace)
            remaining = {key: value for key, value in entry.document.properties.items() if key not in removals}
            if self._names.write(namespace, entry, replace(entry.document, properties={**remaining, **updates})):
                return

    def drop(self, namespace: Names) -> None:
        """Drop an empty namespace.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: it does not exist.
        :raises pyiceberg.exceptions.NamespaceNotEmptyError: it has tables or namespaces.
        :raises pyiceberg.exceptions.CommitFailedException: another writer changes it.
        """
        from pyiceberg.exceptions import CommitFailedException, NamespaceNotEmptyError

        entry = self.require(namespace)
        if not self._names.write(namespace, entry, replace(entry.document, state="dropping")):
            raise CommitFailedException(f"Another writer changes the namespace {'.'.join(namespace)}.")
        settled = self._settle(namespace)
        same = settled is not None and settled.document.incarnation == entry.document.incarnation
        if same and settled is not None and settled.document.state == "live":
            raise NamespaceNotEmptyError(f"The namespace {'.'.join(namespace)} is not empty.")

    def _settle(self, namespace: Names) -> Entry | None:
        """Read a namespace's document, after completing a change that another writer has begun."""
        while (entry := self._names.read(namespace)) is not None:
            document = entry.document
            if document.state == "creating":
                self._names.mark(namespace, document.incarnation)
                self._names.write(namespace, entry, replace(document, state="live"))
            elif document.state == "dropping":
                after = replace(document, state="live" if self._is_used(namespace) else "dropped")
                self._names.write(namespace, entry, after)
            else:
                if document.state == "dropped":
                    self._names.unmark_all(entry)
                return entry
        return None

    def _is_used(self, namespace: Names) -> bool:
        return any(True for _ in self._tables.listed(namespace)) or bool(self._below(namespace))


def _existing(namespace: Names, entry: Entry | None) -> Entry:
    from pyiceberg.exceptions import NoSuchNamespaceError

    if entry is None:
        raise NoSuchNamespaceError(f"There is no namespace {'.'.join(namespace)}.")
    return entry
