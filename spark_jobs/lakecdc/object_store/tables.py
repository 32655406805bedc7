"""Tables by name: create, drop, rename and load them, in steps that the next reader completes if a writer fails.

A name's document alone decides which table it refers to. The table's versions decide whether it exists: the last
version of a dropped table marks it as dropped.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from lakecdc.contract.errors import LakecdcError, SourceUnavailableError
from lakecdc.object_store.conditional_writes import ID, parsed
from lakecdc.object_store.names import Directory, Document, Entry, Names
from lakecdc.object_store.namespaces import Namespaces
from lakecdc.object_store.storage import DeniedError, Storage
from lakecdc.object_store.versions import OLDEST_STUB, Dropped, Version, Versions

#: a name's document, and the newest version of its table
State = tuple[Entry | None, Version | Dropped | None]


class Tables:
    """The tables of a warehouse by name."""

    def __init__(self, storage: Storage, warehouse: str) -> None:
        self._storage = storage
        self._names = Directory(storage, warehouse, "table")
        self._namespaces = Namespaces(storage, warehouse)

    def listed(self, namespace: Names) -> list[str]:
        """Return the names of the tables in a namespace."""
        return [names[-1] for names in self._names.listed(namespace)]

    def versions(self, location: str) -> Versions:
        """Return the versions of the table at a location."""
        return Versions(self._storage, location)

    def load(self, identifier: Names) -> Version:
        """Return a table's newest version.

        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        """
        return self._live(identifier, self._look_up)[1]

    def _live(self, identifier: Names, read: Callable[[Names], State] | None = None) -> tuple[Entry, Version]:
        entry, head = (read or self._settle)(identifier)
        if entry is None or not isinstance(head, Version):
            raise _missing(identifier)
        return entry, head

    def location(self, identifier: Names) -> str:
        """Return where a table is.

        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        """
        return _location(self._live(identifier)[0])

    def create(self, identifier: Names, location: str, text: str) -> Version:
        """Create a table.

        :raises pyiceberg.exceptions.TableAlreadyExistsError: the name or the location is used.
        :raises pyiceberg.exceptions.NoSuchNamespaceError: there is no such namespace.
        :raises pyiceberg.exceptions.CommitFailedException: another writer creates or drops it.
        :raises pyiceberg.exceptions.CommitStateUnknownException: it may have been created.
        """
        from pyiceberg.exceptions import CommitStateUnknownException, TableAlreadyExistsError

        free, versions = self._free(identifier), self.versions(location)
        if (head := versions.head()) is not None:
            raise TableAlreadyExistsError(_used(location, head))
        begun = self._begin(identifier, free, location)
        version = versions.commit(0, text, write=begun.document.incarnation)
        if version is None:
            # leave the name to the writer of that version, if it was taken over from it
            entry, _ = self._settle(identifier)
            if entry is not None and entry.tag == begun.tag:
                self._forget(identifier, begun)
            raise TableAlreadyExistsError(f"Another writer has created a table in {location}.")
        try:
            self._finish(identifier, begun)
        except LakecdcError as error:
            # the next reader of the name completes the change
            raise CommitStateUnknownException(f"{'.'.join(identifier)} may have been created: {error}") from error
        return version

    def name(self, identifier: Names, location: str) -> None:
        """Give a name to the table at a location.

        :raises pyiceberg.exceptions.TableAlreadyExistsError: the name is used.
        :raises pyiceberg.exceptions.NoSuchNamespaceError: there is no such namespace.
        :raises pyiceberg.exceptions.CommitFailedException: another writer creates or drops it.
        """
        self._finish(identifier, self._begin(identifier, self._free(identifier), location))

    def refuse_named(self, location: str) -> None:
        """Refuse a location whose table has a name, because dropping one of two names would drop both.

        :raises pyiceberg.exceptions.TableAlreadyExistsError: it has one.
        """
        from pyiceberg.exceptions import TableAlreadyExistsError

        for each in self._names.listed():
            entry, head = self._settle(each)
            if entry is not None and isinstance(head, Version) and _location(entry) == location:
                raise TableAlreadyExistsError(f"The table in {location} has the name {'.'.join(each)}.")

    def _free(self, identifier: Names) -> Entry | None:
        """Return the document of a name without a table.

        The name of a table that another writer has begun may be taken over while it has no version.
        """
        from pyiceberg.exceptions import TableAlreadyExistsError

        self._namespaces.require(identifier[:-1])
        entry, head = self._settle(identifier)
        if isinstance(head, Version):
            raise TableAlreadyExistsError(f"The table {'.'.join(identifier)} exists.")
        return entry

    def _begin(self, identifier: Names, free: Entry | None, location: str) -> Entry:
        write = str(uuid.uuid4())
        if self._names.write(identifier, free, Document("creating", write, location), write):
            entry = self._names.read(identifier)
            if entry is not None and entry.document.incarnation == write:
                return entry
        raise _overtaken(identifier)

    def _finish(self, identifier: Names, begun: Entry) -> None:
        """Publish a new table under its name, if its namespace still exists."""
        from pyiceberg.exceptions import CommitStateUnknownException, NoSuchNamespaceError

        incarnation = begun.document.incarnation
        self._names.mark(identifier, incarnation)
        if not self._namespaces.is_live(identifier[:-1]):
            self._forget(identifier, begun)
            raise NoSuchNamespaceError(f"There is no namespace {'.'.join(identifier[:-1])}.")
        if self._names.write(identifier, begun, replace(begun.document, state="live")):
            return
        entry = self._names.read(identifier)
        if entry is not None and entry.document.incarnation == incarnation:
            # others have completed it, and may have changed it since
            return
        self._names.unmark(identifier, incarnation)
        if entry is None or _location(entry) != _location(begun):
            raise _overtaken(identifier)
        # the writer that has taken the name over finds the version at the same location, and gives the name back
        raise CommitStateUnknownException(f"{'.'.join(identifier)} may have been created.")

    def _first_write(self, begun: Entry) -> str | None:
        """Return the write of the first version, if the last or an earlier writer of this name made it."""
        stored = self._storage.read(self.versions(_location(begun)).location_of(1))
        write = parsed(stored).get(ID) if stored is not None else None
        return write if write in (begun.document.incarnation, *begun.document.earlier) else None

    def drop(self, identifier: Names) -> str:
        """Drop a table, so that no version can follow, and free its name.

        :return: its location.
        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        """
        while True:
            entry, _ = self._live(identifier)
            # a name in this state cannot be renamed meanwhile
            if self._names.write(identifier, entry, replace(entry.document, state="dropping")):
                self._settle(identifier)
                return _location(entry)

    def rename(self, identifier: Names, to: Names) -> None:
        """Give a table another name.

        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        :raises pyiceberg.exceptions.TableAlreadyExistsError: the other name is used.
        :raises pyiceberg.exceptions.NoSuchNamespaceError: there is no such namespace.
        :raises pyiceberg.exceptions.CommitFailedException: another writer changes one of the names.
        """
        from pyiceberg.exceptions import TableAlreadyExistsError

        entry, _ = self._live(identifier)
        self._free(to)
        write = str(uuid.uuid4())
        if not self._names.write(identifier, entry, replace(entry.document, state="moving", to=to), write):
            raise _overtaken(identifier)
        self._settle(identifier)
        arrived = self._names.read(to)
        if arrived is None or write not in arrived.document.arrivals:
            self._namespaces.require(to[:-1])
            raise TableAlreadyExistsError(f"The table {'.'.join(to)} exists.")

    def _look_up(self, identifier: Names) -> State:
        """Read a name and version; if the storage is read-only, judge an unfinished change without completing it."""
        with suppress(DeniedError):
            return self._settle(identifier)
        entry = self._names.read(identifier)
        return entry, self._newest(identifier, entry) if entry is not None and self._has_table(entry) else None

    def _has_table(self, entry: Entry) -> bool:
        """Judge whether a name will have a table once its unfinished change is completed."""
        document = entry.document
        if document.state == "moving":
            # until the table exists, it is unknown whether its writer has failed
            target = self._names.read(document.to)
            return target is None or document.id not in target.document.arrivals
        if document.state == "creating":
            return self._first_write(entry) is not None and self._namespaces.exists(entry.names[:-1])
        return document.state == "live"

    def _newest(self, identifier: Names, entry: Entry) -> Version | Dropped:
        head = self.versions(_location(entry)).head()
        if head is None:
            raise SourceUnavailableError(
                f"{'.'.join(identifier)}: no version of its metadata is in {_location(entry)}.",
                hint="Check that the storage shows the whole warehouse; restore the table's metadata folder.",
            )
        return head

    def _settle(self, identifier: Names) -> State:
        """Read a name's document and the newest version, after completing a change that another writer has begun."""
        from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError

        while (entry := self._names.read(identifier)) is not None:
            document = entry.document
            if document.state == "dropped":
                self._names.unmark_all(entry)
                return entry, None
            if document.state == "moving":
                self._move(identifier, entry)
                continue
            if document.state == "creating":
                if (first_write := self._first_write(entry)) is None:
                    return entry, None
                if first_write == document.incarnation:
                    # another writer may be faster, or the namespace gone: the present state is read next
                    with suppress(CommitFailedException, NoSuchNamespaceError):
                        self._finish(identifier, entry)
                else:
                    # it was taken over, and the new writer may be gone
                    self._names.write(identifier, entry, replace(document, incarnation=first_write))
                continue
            if document.state == "dropping":
                self.versions(_location(entry)).drop()
            head = self._newest(identifier, entry)
            if not isinstance(head, Dropped):
                return entry, head
            self._forget(identifier, entry)
        return None, None

    def _forget(self, identifier: Names, entry: Entry) -> None:
        document = entry.document
        # a writer must not mistake the dropped name for a table that another writer completed
        incarnation = str(uuid.uuid4()) if document.state == "creating" else document.incarnation
        if self._names.write(identifier, entry, replace(document, state="dropped", to=(), incarnation=incarnation)):
            self._names.unmark(identifier, document.incarnation)

    def _move(self, identifier: Names, entry: Entry) -> None:
        """Complete a rename, or undo it if the new name was used meanwhile."""
        document, to = entry.document, entry.document.to
        target = self._names.read(to)
        # read after the new name: if this one is still moving, the rename was not completed before that read
        again = self._names.read(identifier)
        if again is None or again.tag != entry.tag:
            return
        if target is not None and document.id in target.document.arrivals:
            self._forget(identifier, entry)
            return
        if self._is_free(target):
            if self._namespaces.is_live(to[:-1]):
                self._names.mark(to, document.id)
                arrivals = (*(target.document.arrivals if target else ()), document.id)
                arrived = Document("live", document.id, document.location, arrivals=arrivals)
                self._names.write(to, target, arrived, document.id)
                # the next read shows which writer was first
                return
            # a paused writer that has read the new name as free must not write it after this one is live again
            if not self._names.write(to, target, Document("dropped", str(uuid.uuid4()))):
                return
        self._names.unmark(to, document.id)
        self._names.write(identifier, entry, replace(document, state="live", to=()))

    def _is_free(self, entry: Entry | None) -> bool:
        if entry is None or entry.document.state == "dropped":
            return True
        return entry.document.state == "creating" and self._first_write(entry) is None


def _location(entry: Entry) -> str:
    return entry.document.location or ""


def _used(location: str, head: Version | Dropped) -> str:
    if isinstance(head, Version):
        return (
            f"The location {location} has a table. Give another one; if the table has no name, register "
            f"{head.location}, or delete the folder if it is not needed."
        )
    return (
        f"The location {location} had a table. Give another one: remove_orphan_files frees the folder "
        f"{OLDEST_STUB.days} days after the table was purged, and you by deleting it then if it was not."
    )


def _missing(identifier: Names) -> Exception:
    from pyiceberg.exceptions import NoSuchTableError

    return NoSuchTableError(f"There is no table {'.'.join(identifier)}.")


def _overtaken(identifier: Names) -> Exception:
    from pyiceberg.exceptions import CommitFailedException

    return CommitFailedException(f"Another writer creates, drops or renames {'.'.join(identifier)}.")
