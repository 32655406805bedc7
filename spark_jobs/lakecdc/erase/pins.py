"""Who keeps snapshots of a table, so that rows which were erased would stay in their files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.lease import is_held
from lakecdc.iceberg.refs import change_refs, read_refs
from lakecdc.iceberg.table import MAIN
from lakecdc.maintain.start_tag import job_tags
from lakecdc.metadata import names
from lakecdc.metadata.consumers import read_consumers

if TYPE_CHECKING:
    from lakecdc.contract.erasing import EraseRowsOptions
    from lakecdc.iceberg.table import IcebergTable

_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"


@dataclass(frozen=True)
class Pins:
    """What keeps snapshots of a table.

    :param kept: what nobody has agreed to drop, in words.
    :param refs: tags and branches that may go.
    :param properties: of consumers that may go.
    """

    kept: list[str] = field(default_factory=list)
    refs: list[str] = field(default_factory=list)
    properties: list[str] = field(default_factory=list)

    @property
    def dropped(self) -> list[str]:
        """What goes, in words."""
        return sorted([*self.refs, *self.properties])


def pins(table: IcebergTable, options: EraseRowsOptions) -> Pins:
    """Find what keeps snapshots of a table other than its head; nothing is changed."""
    found, properties = Pins(), table.refresh().properties
    consumers = read_consumers(properties)
    for consumer in consumers.values():
        if _named(consumer.name, options.drop_consumers):
            found.properties.append(consumer.property_name)
        else:
            found.kept.append(f"consumer {consumer.name}")
    _of_refs(table, options, {each.tag: each.name for each in consumers.values()}, found)
    if int(properties.get(_MIN_SNAPSHOTS, 1)) > 1:
        found.kept.append(f"property {_MIN_SNAPSHOTS}")
    return found


def _of_refs(table: IcebergTable, options: EraseRowsOptions, consumers: dict[str, str], found: Pins) -> None:
    refs = read_refs(table)
    leased, jobs = is_held(table), job_tags(refs)
    for name, ref in refs.items():
        if name in (MAIN, names.POSITIONS_TAG) or ref.is_over(table.snapshot(ref.snapshot_id)):
            continue
        if name in jobs or (name == names.LEASE_TAG and leased):
            found.kept.append(f"running job {name}")
        elif name in consumers:
            if _named(consumers[name], options.drop_consumers):
                found.refs.append(name)
        elif name == names.LEASE_TAG or _named(name, options.drop_refs):
            found.refs.append(name)
        else:
            found.kept.append(f"{ref.kind} {name}")


def refuse_pinned(found: Sequence[tuple[IcebergTable, Pins]]) -> None:
    """Refuse to begin where erased rows would stay.

    :raises InputError: naming all that keeps them.
    """
    kept = [f"{pin} of {table.name}" for table, each in found for pin in each.kept]
    if kept:
        raise InputError(
            f"Snapshots with the rows are kept by {', '.join(kept)}.",
            table=found[-1][0].name,
            hint="Name what may go in options.drop_refs and options.drop_consumers, wait for running jobs, and unset "
            "properties; nothing was erased. Branches are dropped, not rewritten.",
        )


def release(table: IcebergTable, found: Pins) -> None:
    """Drop what may go."""
    if found.properties:
        table.update_properties(dict.fromkeys(found.properties))
    there = read_refs(table.refresh())
    if going := {name: None for name in found.refs if name in there}:
        change_refs(table, dict(going))


def _named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
