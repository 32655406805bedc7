"""Public names of ingestion: the rooms above it import them from here alone, probes from ``probe_api``."""

from __future__ import annotations

from lakecdc.ingest.aggregating.table import rebuild
from lakecdc.ingest.apply.publish import Commit, Staged, position_summary, publish
from lakecdc.ingest.apply.rows import cluster_rows, table_columns
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.cleaning import clean_for_table
from lakecdc.ingest.current_rows import LoadedTable, Source, SourceTable, open_source
from lakecdc.ingest.current_rows.key_ranges import KeyCondition, KeyRange, key_number, key_value_text
from lakecdc.ingest.discovery import expand_targets
from lakecdc.ingest.erased import erased_key_hash, key_in_field_order, remember_erased
from lakecdc.ingest.floor import table_floor
from lakecdc.ingest.job import feed_tables
from lakecdc.ingest.lookup import read_keys
from lakecdc.ingest.onto_past import PastBranch, apply_onto_past, fold_onto_past
from lakecdc.ingest.past_events import changes_of, count_unknown, struct_of, whole_rows
from lakecdc.ingest.quarantine import (
    count_quarantined,
    dismiss_quarantined,
    newest_quarantined_order,
    oldest_quarantined_orders,
)
from lakecdc.ingest.sources.file_memory import chapter_links, replaced_chapters
from lakecdc.ingest.sources.kafka.progress import unread_partitions
from lakecdc.ingest.sources.log.parking import Parking, settled_rounds
from lakecdc.ingest.tables import source_types
from lakecdc.ingest.tombstones import oldest_order_to_come

__all__ = [
    "Batch",
    "Column",
    "Commit",
    "KeyCondition",
    "KeyRange",
    "LoadedTable",
    "Parking",
    "PastBranch",
    "Rows",
    "Source",
    "SourceFacts",
    "SourceTable",
    "Staged",
    "apply_onto_past",
    "changes_of",
    "chapter_links",
    "clean_for_table",
    "cluster_rows",
    "count_quarantined",
    "count_unknown",
    "dismiss_quarantined",
    "erased_key_hash",
    "expand_targets",
    "feed_tables",
    "table_floor",
    "fold_onto_past",
    "key_in_field_order",
    "newest_quarantined_order",
    "key_number",
    "oldest_order_to_come",
    "oldest_quarantined_orders",
    "open_source",
    "publish",
    "read_keys",
    "rebuild",
    "remember_erased",
    "replaced_chapters",
    "settled_rounds",
    "source_types",
    "struct_of",
    "position_summary",
    "table_columns",
    "whole_rows",
    "unread_partitions",
    "key_value_text",
]
