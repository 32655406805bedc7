"""Create, change, drop and list namespaces, also while tables are created in them.

A table shows its marker and then asks whether its namespace is live; a namespace that is to go says so and then asks
whether it has markers. So one of the two sees the other.
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
            self.seen(parent)
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
        if (found := self._settled(namespace)) is not None and found.document.state != "dropped":
            raise NamespaceAlreadyExistsError(f"The namespace {'.'.join(namespace)} exists.")
        write = str(uuid.uuid4())
        begun = Document("creating", write, properties=dict(properties))
        if not self._names.write(namespace, found, begun, write):
            raise CommitFailedException(f"Another writer creates the namespace {'.'.join(namespace)}.")
        self._settled(namespace)
        if namespace[:-1] and not self.is_live(namespace[:-1]):
            self.drop(namespace)
            self.require(namespace[:-1])

    def require(self, namespace: Names) -> Entry:
        """Return the document of a namespace.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: it does not exist.
        """
        return _existing(namespace, self._live(namespace) if namespace else None)

    def seen(self, namespace: Names) -> Entry:
        """Return the document of a namespace for a read: without a write where the storage takes none.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: it does not exist.
        """
        with suppress(DeniedError):
            return self.require(namespace)
        found = self._names.read(namespace)
        state = found.document.state if found else "dropped"
        goes = state == "dropping" and not self._is_used(namespace)
        return _existing(namespace, None if goes or state == "dropped" else found)

    def is_live(self, namespace: Names) -> bool:
        """Return whether a namespace exists, and does not go."""
        return self._live(namespace) is not None

    def is_seen(self, namespace: Names) -> bool:
        """Return whether a namespace exists for a read; see :meth:`seen`."""
        from pyiceberg.exceptions import NoSuchNamespaceError

        with suppress(NoSuchNamespaceError):
            self.seen(namespace)
            return True
        return False

    def _live(self, namespace: Names) -> Entry | None:
        found = self._settled(namespace)
        return found if found is not None and found.document.state == "live" else None

    def update(self, namespace: Names, removals: Collection[str], updates: Mapping[str, str]) -> None:
        """Change the properties of a namespace, again while other writers come first.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: it does not exist.
        """
        while True:
            found = self.require(namespace)
            kept = {key: value for key, value in found.document.properties.items() if key not in removals}
            if self._names.write(namespace, found, replace(found.document, properties={**kept, **updates})):
                return

    def drop(self, namespace: Names) -> None:
        """Drop an empty namespace.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: it does not exist.
        :raises pyiceberg.exceptions.NamespaceNotEmptyError: it has tables or namespaces.
        :raises pyiceberg.exceptions.CommitFailedException: another writer changes it.
        """
        from pyiceberg.exceptions import CommitFailedException, NamespaceNotEmptyError

        found = self.require(namespace)
        if not self._names.write(namespace, found, replace(found.document, state="dropping")):
            raise CommitFailedException(f"Another writer changes the namespace {'.'.join(namespace)}.")
        settled = self._settled(namespace)
        same = settled is not None and settled.document.incarnation == found.document.incarnation
        if same and settled is not None and settled.document.state == "live":
            raise NamespaceNotEmptyError(f"The namespace {'.'.join(namespace)} is not empty.")

    def _settled(self, namespace: Names) -> Entry | None:
        """Read a namespace's document; complete what a writer that may be gone has begun."""
        while (found := self._names.read(namespace)) is not None:
            document = found.document
            if document.state == "creating":
                self._names.mark(namespace, document.incarnation)
                self._names.write(namespace, found, replace(document, state="live"))
            elif document.state == "dropping":
                after = replace(document, state="live" if self._is_used(namespace) else "dropped")
                self._names.write(namespace, found, after)
            else:
                if document.state == "dropped":
                    self._names.unmark_all(found)
                return found
        return None

    def _is_used(self, namespace: Names) -> bool:
        return any(True for _ in self._tables.listed(namespace)) or bool(self._below(namespace))


def _existing(namespace: Names, found: Entry | None) -> Entry:
    from pyiceberg.exceptions import NoSuchNamespaceError

    if found is None:
        raise NoSuchNamespaceError(f"There is no namespace {'.'.join(namespace)}.")
    return found
