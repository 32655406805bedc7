"""Public names of ingestion: other packages import ingestion only from here, probes from ``probe_api``."""

from __future__ import annotations

from lakecdc.ingest.apply.publish import Commit as Commit
from lakecdc.ingest.apply.publish import Staged as Staged
from lakecdc.ingest.apply.publish import position_summary as position_summary
from lakecdc.ingest.apply.publish import publish as publish
from lakecdc.ingest.apply.rows import cluster_rows as cluster_rows
from lakecdc.ingest.apply.rows import table_columns as table_columns
from lakecdc.ingest.batch import Batch as Batch
from lakecdc.ingest.batch import SourceFacts as SourceFacts
from lakecdc.ingest.change import Column as Column
from lakecdc.ingest.change import Rows as Rows
from lakecdc.ingest.cleaning import clean_for_table as clean_for_table
from lakecdc.ingest.current_rows import LoadedTable as LoadedTable
from lakecdc.ingest.current_rows import Source as Source
from lakecdc.ingest.current_rows import SourceTable as SourceTable
from lakecdc.ingest.current_rows import open_source as open_source
from lakecdc.ingest.current_rows.key_ranges import KeyCondition as KeyCondition
from lakecdc.ingest.current_rows.key_ranges import KeyRange as KeyRange
from lakecdc.ingest.current_rows.key_ranges import key_number as key_number
from lakecdc.ingest.current_rows.key_ranges import key_value_text as key_value_text
from lakecdc.ingest.discovery import expand_targets as expand_targets
from lakecdc.ingest.erased import erased_key_hash as erased_key_hash
from lakecdc.ingest.erased import key_in_field_order as key_in_field_order
from lakecdc.ingest.erased import remember_erased as remember_erased
from lakecdc.ingest.floor import table_floor as table_floor
from lakecdc.ingest.job import feed_tables as feed_tables
from lakecdc.ingest.lookup import read_keys as read_keys
from lakecdc.ingest.onto_past import PastBranch as PastBranch
from lakecdc.ingest.onto_past import apply_onto_past as apply_onto_past
from lakecdc.ingest.onto_past import fold_onto_past as fold_onto_past
from lakecdc.ingest.past_events import changes_of as changes_of
from lakecdc.ingest.past_events import count_unknown as count_unknown
from lakecdc.ingest.past_events import struct_of as struct_of
from lakecdc.ingest.past_events import whole_rows as whole_rows
from lakecdc.ingest.quarantine import count_quarantined as count_quarantined
from lakecdc.ingest.quarantine import dismiss_quarantined as dismiss_quarantined
from lakecdc.ingest.quarantine import newest_quarantined_order as newest_quarantined_order
from lakecdc.ingest.quarantine import oldest_quarantined_orders as oldest_quarantined_orders
from lakecdc.ingest.sources.file_memory import chapter_links as chapter_links
from lakecdc.ingest.sources.file_memory import replaced_chapters as replaced_chapters
from lakecdc.ingest.sources.kafka.progress import unread_partitions as unread_partitions
from lakecdc.ingest.sources.log.parking import Parking as Parking
from lakecdc.ingest.sources.log.parking import settled_rounds as settled_rounds
from lakecdc.ingest.tables import source_types as source_types
from lakecdc.ingest.tombstones import oldest_order_to_come as oldest_order_to_come
