"""The job that erases rows, from a table and all that is kept beside it, and proves that none of their keys is left."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lakecdc.contract.erasing import EraseRowsOptions
from lakecdc.contract.errors import InputError, UnsupportedError, VerificationError
from lakecdc.contract.report import TableReport
from lakecdc.erase.cursors import order_without, refuse_unfinished_load
from lakecdc.erase.keys import Keys, key_text, read_keys
from lakecdc.erase.mentions import Mentions, documents_with_keys
from lakecdc.erase.metadata_files import delete_former
from lakecdc.erase.pins import Pins, pins, refuse_pinned, release
from lakecdc.erase.places import Place, mentions_of, places
from lakecdc.erase.proof import Examined, drop_statistics, examine, sweep
from lakecdc.erase.rewrite import erase, expire_all, refuse_unsupported
from lakecdc.iceberg.table import carrier_of
from lakecdc.ingest.erased import remember_erased
from lakecdc.ingest.quarantine import newest_order
from lakecdc.maintain.findings import Findings, approved_lines
from lakecdc.maintain.rewrite import nothing
from lakecdc.maintain.rollback_history import named_history
from lakecdc.metadata import names
from lakecdc.metadata.erasure import erasure_begun, erasure_ended
from lakecdc.metadata.positions import current_position
from lakecdc.metadata.side_of import read_side_of

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable

#: where a key may be that this job does not reach; part of every report
OUT_OF_REACH = (
    "the source, its log and its topics",
    "files that were ingested or exported",
    "what names the keys",
    "logs of jobs",
    "Airflow's database (XCom, rendered templates)",
    "event logs of Spark",
    "tables that no option names",
    "backups and versions of the storage",
)
_MOST_NAMED = 20


def erase_rows(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Erase the rows of some keys from one table and what is kept beside it.

    All that could stop it is looked at before anything is written. Stopped in between, it goes on when it runs again.

    :raises SpecError: nothing names the keys, or the condition is about the key.
    :raises InputError: something named is not there, snapshots are pinned, parts of the source's log wait to be
        applied, or nobody has agreed.
    :raises UnsupportedError: not every file can be rewritten, decoded and deleted.
    :raises ConflictError: other writers were faster, again and again.
    """
    options, started = spec.options, time.monotonic()
    assert isinstance(options, EraseRowsOptions)
    if names.is_side_table(table.name):
        raise UnsupportedError("It is one of lakecdc's own tables.", table=table.name, hint="Name its target.")
    head = table.refresh().head()
    if head is None:
        return nothing(table, "the table has no snapshot")
    history = named_history(table, options.history_tables.get(table.name))
    keys = read_keys(table, options, history)
    told: dict[str, Any] = {"keys": keys.count, "key_digest": keys.digest, "out_of_reach": _out_of_reach(options)}
    if not keys.count:
        return nothing(table, "no key is named", head, **told)
    found = places(table, keys, options, history)
    for place in found:
        refuse_unsupported(place)
    _refuse_interrupted(table, history)
    refuse_unfinished_load(table)
    pinned = [(place.table, pins(place.table, options)) for place in found]
    _refuse_unapproved(table, options, _what_is_erased(table, keys, found), _drops(pinned))
    if options.dry_run:
        return _looked(table, spec, told, found, pinned, keys)
    refuse_pinned(pinned)
    done: list[dict[str, Any]] = [{"place": place.kind, "table": place.table.name} for place in found]
    fed = [table, *([history] if history else [])]
    _remember(fed, keys, found)
    for place, facts in zip(found, done, strict=True):
        # history rows of a batch would go that the table brings back as news
        check = partial(_refuse_interrupted, table, place.table) if place.kind == "history" else None
        facts |= erase(place, spec, check)
    # an event may have been taken in meanwhile, and erased with the rest
    _remember(fed, keys, found)
    for (each, pin), facts in zip(pinned, done, strict=True):
        release(each, pin)
        facts |= {"snapshots_expired": expire_all(each, spec), "dropped": pin.dropped}
        facts["metadata_deleted"] = delete_former(each)
    mentions = mentions_of(keys, found)
    proofs = [_proven(place, facts, mentions) for place, facts in zip(found, done, strict=True)]
    after = table.refresh().head()
    sums = {
        name: sum(facts[name] for facts in done)
        for name in ("rows_erased", "files_rewritten", "snapshots_expired", "trash_deleted", "statistics_deleted")
    }
    told["metadata_deleted"] = sum(facts["metadata_deleted"] for facts in done)
    left = _left(found, proofs) | _in_documents(options, mentions, told)
    told |= {**sums, "files_with_keys": sum(left.values()), "places": done}
    told["seconds"] = round(time.monotonic() - started, 3)
    ends: dict[str, Any] = {
        "snapshot_before": str(head.id),
        "snapshot_after": str(after.id) if after else None,
        "metrics": told,
    }
    if left:
        counted = ", ".join(f"{count} files of {where}" for where, count in left.items())
        error = VerificationError(
            f"Not erased: {counted} hold keys or cannot be decoded.",
            table=table.name,
            hint="Run again when no other job writes; remove_orphan_files takes files that nothing refers to. Remove "
            "documents, files in not_decoded and properties in metadata_with_keys by hand.",
        )
        return TableReport.failure(table.name, error, **ends)
    for each in fed:
        each.update_properties(dict(erasure_ended()))
    if not any(sums.values()):
        return TableReport(table.name, "nothing", "no file holds one of the keys", **ends)
    return TableReport(table.name, "done", **ends)


def _looked(
    table: IcebergTable,
    spec: JobSpec,
    told: dict[str, Any],
    found: Sequence[Place],
    pinned: Sequence[tuple[IcebergTable, Pins]],
    keys: Keys,
) -> TableReport:
    """What a dry run tells: where keys are, and who keeps them there."""
    mentions = mentions_of(keys, found)
    told["places"] = [
        {"place": place.kind, "table": place.table.name, **examine(place, mentions).metrics(mentions)}
        for place in found
    ]
    told["pinned_by"] = [f"{pin} of {each.name}" for each, pin_of in pinned for pin in pin_of.kept]
    told["drops"] = _drops(pinned)
    assert isinstance(spec.options, EraseRowsOptions)
    _in_documents(spec.options, mentions, told)
    findings = Findings()
    findings.add({**_what_is_erased(table, keys, found), "places": told["places"], "drops": told["drops"]})
    return nothing(table, "dry run: nothing was changed", table.head(), **told, **findings.leave(spec, table.name))


def _drops(pinned: Sequence[tuple[IcebergTable, Pins]]) -> list[str]:
    return [f"{pin} of {each.name}" for each, pin_of in pinned for pin in pin_of.dropped]


def _what_is_erased(table: IcebergTable, keys: Keys, found: Sequence[Place]) -> dict[str, Any]:
    """What has to be the same for an approval to hold."""
    return {
        "table_uuid": table.uuid,
        "key_digest": keys.digest,
        "keys": keys.count,
        "tables": sorted(place.table.name for place in found),
    }


def _refuse_unapproved(
    table: IcebergTable, options: EraseRowsOptions, erased: dict[str, Any], drops: Sequence[str]
) -> None:
    approved = options.approval_of(table.name)
    if approved is None:
        return
    (line,) = approved_lines(approved, table.name)
    agreed = json.loads(line)
    hint = "Nothing was erased. Make a dry run anew, and have its list approved."
    for name, value in erased.items():
        if agreed[name] != value:
            raise InputError(
                f"Its {name} is {value!r}, and a person has agreed to an erasure of {agreed[name]!r}.",
                table=table.name,
                hint=hint,
            )
    if further := sorted({*drops} - {*agreed["drops"]}):
        raise InputError(f"Nobody has agreed to drop {', '.join(further)}.", table=table.name, hint=hint)


def _refuse_interrupted(table: IcebergTable, history: IcebergTable | None) -> None:
    """Refuse while the history table has a batch that the table has not: by its snapshots alone it is known."""
    if history is None:
        return
    notes = (read_side_of(snapshot.summary) for snapshot in history.ancestors())
    note = next((note for note in notes if note is not None), None)
    # the table as it is after the history table was loaded
    if note is not None and note.is_ahead_of(table.uuid, carrier_of(table.refresh().ancestors())):
        raise InputError(
            f"Its history table {history.name} has a batch that the table has not taken yet.",
            table=table.name,
            hint="Run ingest, which ends it, and then erase.",
        )


def _remember(fed: Sequence[IcebergTable], keys: Keys, found: Sequence[Place]) -> None:
    """Remember the keys; a batch of ingestion that was read before is not committed any more, but made anew.

    :param fed: the table, and its history table if it has one.
    """
    table = fed[0]
    position = current_position(carrier_of(table.refresh().ancestors()), table.properties)
    # messages in quarantine may be newer than all that was applied
    waiting = [newest_order(place.table, table.name) for place in found if place.kind == "quarantine"]
    order = max(filter(None, [position.high_order if position else None, *waiting]), default=None)
    if order:
        order = order_without(order, found[0].integers)
        remember_erased(table, keys.frame.select(key_text(keys.columns).alias("text")), order)
    for each in fed:
        each.update_properties(dict(erasure_begun(keys.digest)))


def _proven(place: Place, facts: dict[str, Any], mentions: Mentions) -> Examined:
    found = examine(place, mentions)
    gone = {"trash_deleted": sweep(place.table, found), "statistics_deleted": drop_statistics(place.table, found)}
    if any(gone.values()):
        facts["metadata_deleted"] += delete_former(place.table)
        found = examine(place, mentions)
    head = place.table.head()
    facts |= {**gone, "snapshot": str(head.id) if head else None, **found.metrics(mentions)}
    return found


def _out_of_reach(options: EraseRowsOptions) -> list[str]:
    return [*OUT_OF_REACH, *([] if options.documents_uri else ["documents of jobs"])]


def _in_documents(options: EraseRowsOptions, mentions: Mentions, told: dict[str, Any]) -> dict[str, int]:
    """Search the documents of jobs for the keys.

    :param told: takes up what is found.
    :return: how many have one, by what they are.
    """
    if options.documents_uri is None:
        return {}
    count, holding = documents_with_keys(options.documents_uri, mentions)
    told |= {"documents": count, "documents_with_keys": holding[:_MOST_NAMED]}
    return {options.documents_uri: len(holding)} if holding else {}


def _left(found: Sequence[Place], proofs: Sequence[Examined]) -> dict[str, int]:
    """Files that hold keys or may do so, by kind of file and table."""
    left: dict[str, int] = {}
    for place, proof in zip(found, proofs, strict=True):
        left |= {f"{kind} of {place.table.name}": len(files) for kind, files in proof.holding.items()}
        if proof.unknown:
            left[f"unknown kind of {place.table.name}"] = len(proof.unknown)
    return left
