"""Tables by name: create, drop, rename and find them, in steps that the next reader completes if a writer fails.

A name's document alone decides which table it refers to, and the table's versions decide whether it exists: the last
version of a dropped table says so, regardless of its name.
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
        return self._live(identifier, self._seen)[1]

    def _live(self, identifier: Names, read: Callable[[Names], State] | None = None) -> tuple[Entry, Version]:
        found, head = (read or self._settled)(identifier)
        if found is None or not isinstance(head, Version):
            raise _missing(identifier)
        return found, head

    def location(self, identifier: Names) -> str:
        """Return where a table is.

        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        """
        return _location(self._live(identifier)[0])

    def create(self, identifier: Names, location: str, text: str) -> Version:
        """Create a table.

        :param text: its first metadata.
        :raises pyiceberg.exceptions.TableAlreadyExistsError: the name or the location is used.
        :raises pyiceberg.exceptions.NoSuchNamespaceError: there is no such namespace.
        :raises pyiceberg.exceptions.CommitFailedException: another writer creates or drops it.
        :raises pyiceberg.exceptions.CommitStateUnknownException: it may have been created.
        """
        from pyiceberg.exceptions import CommitStateUnknownException, TableAlreadyExistsError

        free, versions = self._free(identifier), self.versions(location)
        if (head := versions.head()) is not None:
            raise TableAlreadyExistsError(_used(location, head))
        begun = self._begun(identifier, free, location)
        made = versions.commit(0, text, write=begun.document.incarnation)
        if made is None:
            self._give_back(identifier, begun)
            raise TableAlreadyExistsError(f"Another writer has created a table in {location}.")
        try:
            self._finish(identifier, begun)
        except LakecdcError as error:
            # the next reader of the name completes the change
            raise CommitStateUnknownException(f"{'.'.join(identifier)} may have been created: {error}") from error
        return made

    def name(self, identifier: Names, location: str) -> None:
        """Give a name to a table that is at a location.

        :raises pyiceberg.exceptions.TableAlreadyExistsError: the name is used.
        :raises pyiceberg.exceptions.NoSuchNamespaceError: there is no such namespace.
        :raises pyiceberg.exceptions.CommitFailedException: another writer creates or drops it.
        """
        self._finish(identifier, self._begun(identifier, self._free(identifier), location))

    def refuse_named(self, location: str) -> None:
        """Refuse a location whose table has a name, as two names would be two tables to those who drop one.

        :raises pyiceberg.exceptions.TableAlreadyExistsError: it has one.
        """
        from pyiceberg.exceptions import TableAlreadyExistsError

        for each in self._names.listed():
            found, head = self._settled(each)
            if found is not None and isinstance(head, Version) and _location(found) == location:
                raise TableAlreadyExistsError(f"The table in {location} has the name {'.'.join(each)}.")

    def _free(self, identifier: Names) -> Entry | None:
        """Return the document of a name without a table.

        One that another writer has begun, and which has no version yet, may be taken over.
        """
        from pyiceberg.exceptions import TableAlreadyExistsError

        self._namespaces.require(identifier[:-1])
        found, head = self._settled(identifier)
        if isinstance(head, Version):
            raise TableAlreadyExistsError(f"The table {'.'.join(identifier)} exists.")
        return found

    def _begun(self, identifier: Names, free: Entry | None, location: str) -> Entry:
        write = str(uuid.uuid4())
        if self._names.write(identifier, free, Document("creating", write, location), write):
            found = self._names.read(identifier)
            if found is not None and found.document.incarnation == write:
                return found
        raise _overtaken(identifier)

    def _give_back(self, identifier: Names, begun: Entry) -> None:
        """Leave a name to the writer whose version is at the location, if the name was taken over from that one."""
        found, _ = self._settled(identifier)
        if found is not None and found.tag == begun.tag:
            self._forget(identifier, begun)

    def _finish(self, identifier: Names, begun: Entry) -> None:
        """Show a new table by its name, if its namespace is still there."""
        from pyiceberg.exceptions import CommitStateUnknownException, NoSuchNamespaceError

        incarnation = begun.document.incarnation
        self._names.mark(identifier, incarnation)
        if not self._namespaces.is_live(identifier[:-1]):
            self._forget(identifier, begun)
            raise NoSuchNamespaceError(f"There is no namespace {'.'.join(identifier[:-1])}.")
        if self._names.write(identifier, begun, replace(begun.document, state="live")):
            return
        found = self._names.read(identifier)
        if found is not None and found.document.incarnation == incarnation:
            # others have completed it, and may have gone on with it
            return
        self._names.unmark(identifier, incarnation)
        if found is None or _location(found) != _location(begun):
            raise _overtaken(identifier)
        # the writer that has taken the name over finds the version at the same location, and gives the name back
        raise CommitStateUnknownException(f"{'.'.join(identifier)} may have been created.")

    def _maker(self, begun: Entry) -> str | None:
        """Return which of the writers that have begun a name, the last one or one before, made the first version."""
        stored = self._storage.read(self.versions(_location(begun)).location_of(1))
        write = parsed(stored).get(ID) if stored is not None else None
        return write if write in (begun.document.incarnation, *begun.document.earlier) else None

    def drop(self, identifier: Names) -> str:
        """Drop a table: no version can follow, then its name is free.

        :return: its location.
        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        """
        while True:
            found, _ = self._live(identifier)
            # a name that says so is not renamed meanwhile
            if self._names.write(identifier, found, replace(found.document, state="dropping")):
                self._settled(identifier)
                return _location(found)

    def rename(self, identifier: Names, to: Names) -> None:
        """Give a table another name.

        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        :raises pyiceberg.exceptions.TableAlreadyExistsError: the other name is used.
        :raises pyiceberg.exceptions.NoSuchNamespaceError: there is no such namespace.
        :raises pyiceberg.exceptions.CommitFailedException: another writer changes one of the names.
        """
        from pyiceberg.exceptions import TableAlreadyExistsError

        found, _ = self._live(identifier)
        self._free(to)
        write = str(uuid.uuid4())
        if not self._names.write(identifier, found, replace(found.document, state="moving", to=to), write):
            raise _overtaken(identifier)
        self._settled(identifier)
        arrived = self._names.read(to)
        if arrived is None or write not in arrived.document.arrivals:
            self._namespaces.require(to[:-1])
            raise TableAlreadyExistsError(f"The table {'.'.join(to)} exists.")

    def _seen(self, identifier: Names) -> State:
        """Read a name for a read; if the storage is read-only, judge an unfinished change without completing it."""
        with suppress(DeniedError):
            return self._settled(identifier)
        found = self._names.read(identifier)
        return found, self._newest(identifier, found) if found is not None and self._stands(found) else None

    def _stands(self, found: Entry) -> bool:
        """Complete what a writer has begun, and return whether the name has a table."""
        document = found.document
        if document.state == "moving":
            # until the table exists, it is unknown whether its writer has failed
            taken = self._names.read(document.to)
            return taken is None or document.id not in taken.document.arrivals
        if document.state == "creating":
            return self._maker(found) is not None and self._namespaces.is_seen(found.names[:-1])
        return document.state == "live"

    def _newest(self, identifier: Names, found: Entry) -> Version | Dropped:
        head = self.versions(_location(found)).head()
        if head is None:
            raise SourceUnavailableError(
                f"{'.'.join(identifier)}: no version of its metadata is in {_location(found)}.",
                hint="Check that the storage shows the whole warehouse; restore the table's metadata folder.",
            )
        return head

    def _settled(self, identifier: Names) -> State:
        """Read a name's document and the newest version; complete what a writer that may be gone has begun."""
        while (found := self._names.read(identifier)) is not None:
            document = found.document
            if document.state == "dropped":
                self._names.unmark_all(found)
                return found, None
            if document.state == "moving":
                self._move(identifier, found)
                continue
            if document.state == "creating":
                if (maker := self._maker(found)) is None:
                    return found, None
                if maker == document.incarnation:
                    self._complete(identifier, found)
                else:
                    # it was taken over, and the one that did so may be gone
                    self._names.write(identifier, found, replace(document, incarnation=maker))
                continue
            if document.state == "dropping":
                self.versions(_location(found)).drop()
            head = self._newest(identifier, found)
            if not isinstance(head, Dropped):
                return found, head
            self._forget(identifier, found)
        return None, None

    def _complete(self, identifier: Names, begun: Entry) -> None:
        from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError

        try:
            self._finish(identifier, begun)
        except (CommitFailedException, NoSuchNamespaceError):
            # another one was faster, or the namespace is gone: what there is now is read next
            return

    def _forget(self, identifier: Names, found: Entry) -> None:
        document = found.document
        # a writer must not take the dropped name for a table that another writer has completed
        incarnation = str(uuid.uuid4()) if document.state == "creating" else document.incarnation
        if self._names.write(identifier, found, replace(document, state="dropped", to=(), incarnation=incarnation)):
            self._names.unmark(identifier, document.incarnation)

    def _move(self, identifier: Names, found: Entry) -> None:
        """Complete a change of names, or undo it if the other name was taken meanwhile."""
        document, to = found.document, found.document.to
        taken = self._names.read(to)
        # read after the other name: while this one still moves, the change was not completed before that read
        again = self._names.read(identifier)
        if again is None or again.tag != found.tag:
            return
        if taken is not None and document.id in taken.document.arrivals:
            self._forget(identifier, found)
            return
        if self._is_free(taken):
            if self._namespaces.is_live(to[:-1]):
                self._names.mark(to, document.id)
                arrivals = (*(taken.document.arrivals if taken else ()), document.id)
                arrived = Document("live", document.id, document.location, arrivals=arrivals)
                self._names.write(to, taken, arrived, document.id)
                # the next read shows which writer was first
                return
            # one that has read the other name as free, and pauses, must not write it after this one is live again
            if not self._names.write(to, taken, Document("dropped", str(uuid.uuid4()))):
                return
        self._names.unmark(to, document.id)
        self._names.write(identifier, found, replace(document, state="live", to=()))

    def _is_free(self, taken: Entry | None) -> bool:
        if taken is None or taken.document.state == "dropped":
            return True
        return taken.document.state == "creating" and self._maker(taken) is None


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
