"""References that keep a table's snapshots, and with them the files of erased rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from lakecdc.contract.errors import InputError
from lakecdc.contract.expiring import EraseRowsOptions
from lakecdc.iceberg.lease import is_held
from lakecdc.iceberg.refs import change_refs, read_refs
from lakecdc.iceberg.table import MAIN, IcebergTable
from lakecdc.maintain.expire import MIN_SNAPSHOTS
from lakecdc.maintain.start_tag import job_tags
from lakecdc.metadata import names
from lakecdc.metadata.consumers import read_consumers


@dataclass(frozen=True)
class Pins:
    """Reasons why snapshots of a table stay: those that no option drops, as text, and refs and properties to drop."""

    blocking: list[str] = field(default_factory=list)
    refs: list[str] = field(default_factory=list)
    properties: list[str] = field(default_factory=list)

    @property
    def dropped(self) -> list[str]:
        return sorted([*self.refs, *self.properties])


def find_pins(table: IcebergTable, options: EraseRowsOptions) -> Pins:
    pinning, properties = Pins(), table.refresh().properties
    consumers = read_consumers(properties)
    for consumer in consumers.values():
        if _named(consumer.name, options.drop_consumers):
            pinning.properties.append(consumer.property_name)
        else:
            pinning.blocking.append(f"consumer {consumer.name}")
    _of_refs(table, options, {each.tag: each.name for each in consumers.values()}, pinning)
    if int(properties.get(MIN_SNAPSHOTS, 1)) > 1:
        pinning.blocking.append(f"property {MIN_SNAPSHOTS}")
    return pinning


def _of_refs(table: IcebergTable, options: EraseRowsOptions, consumers: dict[str, str], pinning: Pins) -> None:
    refs = read_refs(table)
    leased, jobs = is_held(table), job_tags(refs)
    for name, ref in refs.items():
        if name in (MAIN, names.POSITIONS_TAG) or ref.is_over(table.snapshot(ref.snapshot_id)):
            continue
        if name in jobs or (name == names.LEASE_TAG and leased):
            pinning.blocking.append(f"running job {name}")
        elif name in consumers:
            if _named(consumers[name], options.drop_consumers):
                pinning.refs.append(name)
        elif name == names.LEASE_TAG or _named(name, options.drop_refs):
            pinning.refs.append(name)
        else:
            pinning.blocking.append(f"{ref.kind} {name}")


def refuse_pinned(pinned: Sequence[tuple[IcebergTable, Pins]]) -> None:
    """Refuse to start while erased rows would stay in snapshots, naming everything that keeps them."""
    blocking = [f"{pin} of {table.name}" for table, each in pinned for pin in each.blocking]
    if blocking:
        raise InputError(
            f"Snapshots with the rows are pinned by {', '.join(blocking)}.",
            table=pinned[-1][0].name,
            hint="Name what to drop in options.drop_refs and options.drop_consumers, wait for running jobs, and unset "
            "properties; nothing was erased. Branches are dropped, not rewritten.",
        )


def release(table: IcebergTable, pinned: Pins) -> None:
    if pinned.properties:
        table.update_properties(dict.fromkeys(pinned.properties))
    there = read_refs(table.refresh())
    if going := {name: None for name in pinned.refs if name in there}:
        change_refs(table, dict(going))


def _named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
