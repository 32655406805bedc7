"""Which tables a replication slot feeds, noted in the comment of its publication, as slots have no comments.

Two sets of tables on one slot would take the log away from each other. A set is known by its catalog and by the targets
of its source tables; it stays the same one as long as a table of it is fed into the same target.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from lakecdc.contract.errors import InputError
from lakecdc.contract.secrets import resolve
from lakecdc.contract.spec import Catalog
from lakecdc.contract.target import Target
from lakecdc.ingest.sources.postgres.catalog import source_name
from lakecdc.ingest.sources.postgres.connect import Session

log = logging.getLogger(__name__)

# before the note, so that any other comment stays beside it
_MARK = "lakecdc slots: "
_READ = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"


@dataclass(frozen=True)
class Owner:
    """A set of tables that a slot feeds.

    :param catalog: name of the targets' catalog.
    :param place: distinguishes that catalog from another one of its name.
    :param targets: target by source table, ``schema.table``.
    """

    catalog: str
    place: str
    targets: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog, targets: Sequence[Target]) -> Owner:
        """Return the owner that a spec is."""
        known = resolve(catalog.properties, "catalog.properties")
        uri = urlsplit(str(known.get("uri", "")))
        # without login: a new password makes no other catalog
        place = f"{uri.netloc.rpartition('@')[2]}{uri.path} {known.get('warehouse', '')}"
        digest = hashlib.sha256(place.encode()).hexdigest()[:16]
        return cls(catalog.name, digest, {".".join(source_name(t)): t.table for t in targets})

    def joined(self, before: Owner | None, published: set[str]) -> Owner:
        """Return this set with its earlier tables that are still published."""
        kept = {s: t for s, t in before.targets.items() if s in published} if before else {}
        return Owner(self.catalog, self.place, {**kept, **self.targets})


def check(slot: str, publication: str, known: Owner | None, mine: Owner, exists: Callable[[str], bool]) -> None:
    """Refuse a slot that feeds another set of tables.

    :param known: the noted owner.
    :param exists: tells whether a target is in the catalog; a set whose targets are all gone does not need its slot.
    :raises InputError: naming the others.
    """
    if known is None:
        return
    here = (known.catalog, known.place) == (mine.catalog, mine.place)
    shared = any(known.targets.get(source) == target for source, target in mine.targets.items())
    if here and (shared or not any(map(exists, known.targets.values()))):
        return
    another = "" if here or known.catalog != mine.catalog else ", which is another catalog of that name"
    raise InputError(
        f"The slot {slot!r} feeds {', '.join(sorted(known.targets.values()))} of the catalog "
        f"{known.catalog!r}{another}. "
        "A second set of tables would take their log away.",
        hint="Give these targets a source.slot of their own. If they take the others' place, run "
        f"COMMENT ON PUBLICATION {publication} IS NULL at the source first; the others need a full load then.",
    )


def read(session: Session, publication: str) -> dict[str, Owner]:
    """Return the noted owners of a publication's slots, by slot."""
    text = _comment(session, publication) or ""
    if _MARK not in text:
        return {}
    try:
        found: dict[str, Any] = json.loads(text.partition(_MARK)[2])
        return {slot: Owner(**owner) for slot, owner in found.items()}
    except (ValueError, TypeError, AttributeError):
        log.warning(
            "the comment of the publication %s cannot be read; whose slot it is has to be noted anew", publication
        )
        return {}


def note(session: Session, publication: str, slot: str, owner: Owner) -> None:
    """Note the owner of a slot; a login that does not own the publication cannot."""
    import psycopg
    from psycopg import sql

    known, comment = read(session, publication), _comment(session, publication)
    if comment is None or known.get(slot) == owner:
        return
    owners = {name: asdict(found) for name, found in {**known, slot: owner}.items()}
    text = comment.partition(_MARK)[0] + _MARK + json.dumps(owners, sort_keys=True)
    statement = sql.SQL("COMMENT ON PUBLICATION {} IS {}")
    try:
        session.execute(statement.format(sql.Identifier(publication), sql.Literal(text)))
    except psycopg.errors.InsufficientPrivilege:
        log.warning("the login does not own the publication %s, so it is not noted there whose slot it is", publication)


def _comment(session: Session, publication: str) -> str | None:
    """Return the comment of a publication, empty if it has none; None without a publication."""
    row = session.execute(_READ, (publication,)).fetchone()
    return str(row[0] or "") if row else None
