"""Record which tables a replication slot feeds, in its publication's comment (slots have no comments).

Two sets of tables on one slot would take the log away from each other. A set is identified by its catalog and the
targets of its source tables; it stays the same as long as one of its tables feeds the same target.
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

# before the record, so that any other comment is kept
_MARK = "lakecdc slots: "
_READ = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"


@dataclass(frozen=True)
class Owner:
    """A set of tables that a slot feeds.

    :param catalog: name of the targets' catalog.
    :param place: distinguishes catalogs of the same name.
    :param targets: target by source table, ``schema.table``.
    """

    catalog: str
    place: str
    targets: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog, targets: Sequence[Target]) -> Owner:
        """Return the owner described by a spec."""
        known = resolve(catalog.properties, "catalog.properties")
        uri = urlsplit(str(known.get("uri", "")))
        # without login: a new password does not change the catalog
        place = f"{uri.netloc.rpartition('@')[2]}{uri.path} {known.get('warehouse', '')}"
        digest = hashlib.sha256(place.encode()).hexdigest()[:16]
        return cls(catalog.name, digest, {".".join(source_name(t)): t.table for t in targets})

    def joined(self, before: Owner | None, published: set[str]) -> Owner:
        """Add the earlier tables that are still published."""
        published_before = {s: t for s, t in before.targets.items() if s in published} if before else {}
        return Owner(self.catalog, self.place, {**published_before, **self.targets})


def check(slot: str, publication: str, known: Owner | None, mine: Owner, exists: Callable[[str], bool]) -> None:
    """Refuse a slot that feeds another set of tables.

    :param known: the recorded owner.
    :param exists: checks whether a target is in the catalog; a set without existing targets does not need its slot.
    :raises InputError: the slot feeds other tables.
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
        "A second set of tables would remove their log.",
        hint="Use another source.slot for these targets. If they replace the others, run "
        f"COMMENT ON PUBLICATION {publication} IS NULL at the source first; the others need a full load then.",
    )


def read(session: Session, publication: str) -> dict[str, Owner]:
    """Return the recorded owners of a publication's slots, by slot."""
    text = _comment(session, publication) or ""
    if _MARK not in text:
        return {}
    try:
        owners: dict[str, Any] = json.loads(text.partition(_MARK)[2])
        return {slot: Owner(**owner) for slot, owner in owners.items()}
    except (ValueError, TypeError, AttributeError):
        log.warning(
            "the comment of the publication %s cannot be read; the owners of its slots are recorded anew", publication
        )
        return {}


def note(session: Session, publication: str, slot: str, owner: Owner) -> None:
    """Record the owner of a slot, if the login owns the publication."""
    import psycopg
    from psycopg import sql

    known, comment = read(session, publication), _comment(session, publication)
    if comment is None or known.get(slot) == owner:
        return
    owners = {name: asdict(each) for name, each in {**known, slot: owner}.items()}
    text = comment.partition(_MARK)[0] + _MARK + json.dumps(owners, sort_keys=True)
    statement = sql.SQL("COMMENT ON PUBLICATION {} IS {}")
    try:
        session.execute(statement.format(sql.Identifier(publication), sql.Literal(text)))
    except psycopg.errors.InsufficientPrivilege:
        log.warning("the login does not own the publication %s, so the slot's owner is not recorded there", publication)


def _comment(session: Session, publication: str) -> str | None:
    """Return the comment of a publication, empty if it has none; None without a publication."""
    row = session.execute(_READ, (publication,)).fetchone()
    return str(row[0] or "") if row else None
