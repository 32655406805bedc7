"""Public names of ingestion: the rooms above it import them from here, and nothing else of ingestion."""

from __future__ import annotations

from lakecdc.ingest import erased, onto_past, quarantine, tombstones
from lakecdc.ingest.apply.publish import Commit, Staged, publish, summary
from lakecdc.ingest.apply.rows import clustered, table_columns
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.cleaning import cleaned_for
from lakecdc.ingest.completion import MAX_KEY_CHANGES
from lakecdc.ingest.current_rows import LoadedTable, Source, SourceTable, open_source
from lakecdc.ingest.current_rows.key_ranges import KeyCondition, KeyRange, number_of, value_text
from lakecdc.ingest.discovery import expanded
from lakecdc.ingest.floor import floor_of
from lakecdc.ingest.job import feed_from
from lakecdc.ingest.lookup import read_keys
from lakecdc.ingest.sources import file_memory
from lakecdc.ingest.sources.kafka import progress as kafka_progress
from lakecdc.ingest.sources.log import parking
from lakecdc.ingest.tables import own_columns

__all__ = [
    "Batch",
    "Column",
    "Commit",
    "KeyCondition",
    "KeyRange",
    "LoadedTable",
    "MAX_KEY_CHANGES",
    "Rows",
    "Source",
    "SourceFacts",
    "SourceTable",
    "Staged",
    "cleaned_for",
    "clustered",
    "erased",
    "expanded",
    "feed_from",
    "file_memory",
    "floor_of",
    "kafka_progress",
    "number_of",
    "onto_past",
    "open_source",
    "own_columns",
    "parking",
    "publish",
    "quarantine",
    "read_keys",
    "summary",
    "table_columns",
    "tombstones",
    "value_text",
]
