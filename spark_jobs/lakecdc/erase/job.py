"""The job that erases rows from a table and the tables beside it, and proves that no key is left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from lakecdc.contract.errors import InputError, UnsupportedError, VerificationError
from lakecdc.contract.expiring import EraseRowsOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.erase.cursors import order_without, refuse_unfinished_load
from lakecdc.erase.keys import Keys, Place, key_text, mentions_of, places, read_keys
from lakecdc.erase.mentions import Mentions, documents_with_keys
from lakecdc.erase.pins import Pins, find_pins, refuse_pinned, release
from lakecdc.erase.proof import Examined, delete_former, drop_statistics, examine, sweep
from lakecdc.erase.rewrite import erase, expire_all, refuse_unsupported
from lakecdc.iceberg.definition import refuse_aggregated
from lakecdc.iceberg.table import IcebergTable, carrier_of, source_positions
from lakecdc.ingest.api import newest_quarantined_order, remember_erased
from lakecdc.maintain.findings import NOT_APPROVED, Findings, approved_entry
from lakecdc.maintain.reports import dry_run, empty, ends, nothing, seconds_since
from lakecdc.maintain.rollback import named_history
from lakecdc.metadata import names
from lakecdc.metadata.floor import erasure_begun, erasure_ended
from lakecdc.metadata.positions import read_side_of

#: places with keys that this job cannot reach; part of every report
OUT_OF_REACH = (
    "the source, its log and its topics",
    "files that were ingested or exported",
    "the tables and files that name the keys",
    "logs of jobs",
    "Airflow's database (XCom, rendered templates)",
    "event logs of Spark",
    "tables that no option names",
    "backups and versions of the storage",
)
_MOST_NAMED = 20


def erase_rows(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Erase the rows of some keys from one table and the tables beside it.

    Everything that could stop the erasure is checked before anything is written. An interrupted erasure continues in
    the next run.

    :raises SpecError: no option names the keys, or the condition uses a key column.
    :raises InputError: a named table does not exist, snapshots are pinned, parts of the source's log are parked, or the
        approval is missing or differs.
    :raises UnsupportedError: not every file can be rewritten, decoded and deleted.
    :raises ConflictError: other writers won every attempt.
    """
    options, started = spec.options_as(EraseRowsOptions), time.monotonic()
    if names.is_side_table(table.name):
        raise UnsupportedError("It is one of lakecdc's own tables.", table=table.name, hint="Name its target.")
    head = table.refresh().head()
    refuse_aggregated(table, "Erase the rows from its history table, then run ingestion, which aggregates it again.")
    if head is None:
        return empty(table)
    history = named_history(table, options.history_tables.get(table.name))
    keys = read_keys(table, options, history)
    out_of_reach = [*OUT_OF_REACH, *([] if options.documents_uri else ["documents of jobs"])]
    metrics: dict[str, Any] = {"keys": keys.count, "key_digest": keys.digest, "out_of_reach": out_of_reach}
    if not keys.count:
        return nothing(table, "no key is named", head, **metrics)
    searched = places(table, keys, options, history)
    for place in searched:
        refuse_unsupported(place)
    _refuse_interrupted(table, history)
    _refuse_waiting(table, searched)
    refuse_unfinished_load(table)
    pinned = [(place.table, find_pins(place.table, options)) for place in searched]
    _refuse_unapproved(table, options, _erasure(table, keys, searched), _drops(pinned))
    if options.dry_run:
        return _dry_run_report(table, spec, metrics, searched, pinned, keys)
    refuse_pinned(pinned)
    done: list[dict[str, Any]] = [{"place": place.kind, "table": place.table.name} for place in searched]
    fed = [table, *([history] if history else [])]
    _remember(fed, keys, searched)
    for place, facts in zip(searched, done, strict=True):
        # otherwise the table's next batch would write erased history rows again
        check = partial(_refuse_interrupted, table, place.table) if place.kind == "history" else None
        facts |= erase(place, spec, check)
    # an event that was applied meanwhile may be erased with the rest
    _remember(fed, keys, searched)
    for (each, pin), facts in zip(pinned, done, strict=True):
        release(each, pin)
        facts |= {"snapshots_expired": expire_all(each, spec), "dropped": pin.dropped}
        facts["metadata_deleted"] = delete_former(each)
    mentions = mentions_of(keys, searched)
    proofs = [_prove(place, facts, mentions) for place, facts in zip(searched, done, strict=True)]
    sums = {
        name: sum(facts[name] for facts in done)
        for name in ("rows_erased", "files_rewritten", "snapshots_expired", "trash_deleted", "statistics_deleted")
    }
    metrics["metadata_deleted"] = sum(facts["metadata_deleted"] for facts in done)
    left = _count_remaining(searched, proofs) | _in_documents(options, mentions, metrics)
    metrics |= {**sums, "files_with_keys": sum(left.values()), "places": done}
    metrics["seconds"] = seconds_since(started)
    facts = ends(head, table.refresh().head()) | {"metrics": metrics}
    if left:
        counted = ", ".join(f"{count} files of {where}" for where, count in left.items())
        error = VerificationError(
            f"Not erased: {counted} contain keys or cannot be decoded.",
            table=table.name,
            hint="Run again when no other job writes; remove_orphan_files deletes unreferenced files. Remove "
            "documents, files in not_decoded and properties in metadata_with_keys by hand.",
        )
        return TableReport.failure(table.name, error, **facts)
    for each in fed:
        each.update_properties(dict(erasure_ended()))
    if not any(sums.values()):
        return TableReport(table.name, "nothing", "no file contains one of the keys", **facts)
    return TableReport(table.name, "done", **facts)


def _dry_run_report(
    table: IcebergTable,
    spec: JobSpec,
    metrics: dict[str, Any],
    searched: Sequence[Place],
    pinned: Sequence[tuple[IcebergTable, Pins]],
    keys: Keys,
) -> TableReport:
    mentions = mentions_of(keys, searched)
    metrics["places"] = [
        {"place": place.kind, "table": place.table.name, **examine(place, mentions).metrics(mentions)}
        for place in searched
    ]
    metrics["pinned_by"] = [f"{pin} of {each.name}" for each, pin_of in pinned for pin in pin_of.blocking]
    metrics["drops"] = _drops(pinned)
    _in_documents(spec.options_as(EraseRowsOptions), mentions, metrics)
    findings = Findings()
    findings.add({**_erasure(table, keys, searched), "places": metrics["places"], "drops": metrics["drops"]})
    return dry_run(table, table.head(), **metrics, **findings.write(spec, table.name))


def _drops(pinned: Sequence[tuple[IcebergTable, Pins]]) -> list[str]:
    return [f"{pin} of {each.name}" for each, pin_of in pinned for pin in pin_of.dropped]


def _erasure(table: IcebergTable, keys: Keys, searched: Sequence[Place]) -> dict[str, Any]:
    return {
        "table_uuid": table.uuid,
        "key_digest": keys.digest,
        "keys": keys.count,
        "tables": sorted(place.table.name for place in searched),
    }


def _refuse_unapproved(
    table: IcebergTable, options: EraseRowsOptions, erased: dict[str, Any], drops: Sequence[str]
) -> None:
    approved = options.approval_of(table.name)
    if approved is None:
        return
    listed = approved_entry(approved, table.name, erased)
    if further := sorted({*drops} - {*listed["drops"]}):
        raise InputError(
            f"Dropping {', '.join(further)} has not been approved.",
            table=table.name,
            hint=NOT_APPROVED,
        )


def _refuse_interrupted(table: IcebergTable, history: IcebergTable | None) -> None:
    """Refuse to erase while the history table is one batch ahead, since only its snapshots identify that batch."""
    if history is None:
        return
    notes = (read_side_of(snapshot.summary) for snapshot in history.ancestors())
    note, fed = next((note for note in notes if note is not None), None), carrier_of(history.ancestors())
    # refreshed after the history table was loaded
    newest = carrier_of(table.refresh().ancestors())
    carrier = newest.of(fed.position.feed) if newest and fed else newest
    if note is not None and note.is_ahead_of(table.uuid, carrier):
        raise InputError(
            f"Its history table {history.name} has a batch that is not yet in the table.",
            table=table.name,
            hint="Run ingest to complete it, then erase.",
        )


def _refuse_waiting(table: IcebergTable, searched: Sequence[Place]) -> None:
    """Refuse a table that several jobs feed while messages wait, since their orders are of one unknown job each."""
    if len(source_positions(table)) > 1 and _newest_waiting(table, searched):
        raise InputError(
            "Several jobs feed it, and it has messages in quarantine that may be newer than everything applied.",
            table=table.name,
            hint="Replay them (replay_quarantine) or dismiss them (clean_side_tables); nothing was erased.",
        )


def _newest_waiting(table: IcebergTable, searched: Sequence[Place]) -> str | None:
    """Return the highest order key in quarantine; None without messages that have one."""
    newest = [newest_quarantined_order(place.table, table.name) for place in searched if place.kind == "quarantine"]
    return max(filter(None, newest), default=None)


def _remember(fed: Sequence[IcebergTable], keys: Keys, searched: Sequence[Place]) -> None:
    """Remember the keys for each job that feeds the table, so that none commits a batch that it read before."""
    table, texts = fed[0], keys.frame.select(key_text(keys.columns).alias("text"))
    of_jobs = {position.feed: position.high_order for position in source_positions(table.refresh())} or {"": None}
    # quarantined messages may be newer than everything applied; of several jobs, those that come now are new
    waiting = _newest_waiting(table, searched) if len(of_jobs) == 1 else None
    for feed, high in of_jobs.items():
        if order := max(filter(None, (high, waiting)), default=None):
            remember_erased(table, texts, order_without(order, searched[0].integers), feed)
    for each in fed:
        each.update_properties(dict(erasure_begun(keys.digest)))


def _prove(place: Place, facts: dict[str, Any], mentions: Mentions) -> Examined:
    examined = examine(place, mentions)
    deleted = {
        "trash_deleted": sweep(place.table, examined),
        "statistics_deleted": drop_statistics(place.table, examined),
    }
    if any(deleted.values()):
        facts["metadata_deleted"] += delete_former(place.table)
        examined = examine(place, mentions)
    head = place.table.head()
    facts |= {**deleted, "snapshot": str(head.id) if head else None, **examined.metrics(mentions)}
    return examined


def _in_documents(options: EraseRowsOptions, mentions: Mentions, metrics: dict[str, Any]) -> dict[str, int]:
    """Search job documents for the keys, and return the number of those with a key, by URI."""
    if options.documents_uri is None:
        return {}
    count, holding = documents_with_keys(options.documents_uri, mentions)
    metrics |= {"documents": count, "documents_with_keys": holding[:_MOST_NAMED]}
    return {options.documents_uri: len(holding)} if holding else {}


def _count_remaining(searched: Sequence[Place], proofs: Sequence[Examined]) -> dict[str, int]:
    left: dict[str, int] = {}
    for place, proof in zip(searched, proofs, strict=True):
        left |= {f"{kind} of {place.table.name}": len(files) for kind, files in proof.holding.items()}
        if proof.unknown:
            left[f"unknown kind of {place.table.name}"] = len(proof.unknown)
    return left
