"""Names of lakecdc's snapshot-summary entries, table properties and refs."""

from collections.abc import Mapping

#: summary: where in the source the snapshot's data ends, one JSON document (see ``positions``)
POSITIONS = "lakecdc.positions"
#: summary: moment at the source, ISO-8601 UTC, up to which the snapshot holds every change
READ_THROUGH = "lakecdc.read-through"
#: summary: the job that made the snapshot
JOB = "lakecdc.job"
#: reserved field of data files with the ids of rows (table specification, "Reserved Field IDs")
ROW_ID, ROW_ID_ID = "_row_id", 2147483540
#: reserved field of data files with the data sequence numbers at which rows were last changed
UPDATED, UPDATED_ID = "_last_updated_sequence_number", 2147483539
#: summary: unique mark of one commit, to find it if the catalog did not answer
COMMIT_ID = "lakecdc.commit-id"
#: summary: highest order key that a row may have, in a table that only its source's log feeds
ROWS_BELOW = "lakecdc.rows-below"
#: summary: comma-separated ids of partition specs, in each of which the commit deletes all of its keys
DELETE_SPECS = "lakecdc.delete-specs"
#: table property: position and read-through of a table that was quiet, bound to its carrier snapshot (see of_feed)
IDLE_POSITION = "lakecdc.idle-position"
#: table property: version of the layout of lakecdc's own columns
LAYOUT = "lakecdc.layout"
#: tag on the newest snapshot that carries positions, so that expiry keeps it
POSITIONS_TAG = "lakecdc-positions"
#: prefixes of the tags of days and months that ``tag_snapshots`` keeps
DAY_TAG_PREFIX = "lakecdc-day-"
MONTH_TAG_PREFIX = "lakecdc-month-"
#: prefix of the table properties of registered consumers, and of the tags on the snapshots that they have read last
CONSUMER_PREFIX = "lakecdc.consumer."
CONSUMER_TAG_PREFIX = "lakecdc-consumer-"
#: prefixes of lakecdc's own tags and branches; all others belong to users
RESERVED_REFS = ("lakecdc-", "lakecdc_")
#: prefix of the short-lived tags that protect the start snapshot of a long job
JOB_TAG_PREFIX = "lakecdc-job-"
#: tag that is a table's lease, table property that names its holder and end, and prefix of the tags of leases that were
#: taken over (see ``lease``)
LEASE_TAG = "lakecdc-lease"
LEASE = "lakecdc.lease"
LEASE_TAKEN_PREFIX = "lakecdc-lease-"
#: summary: sort order of the files of a sort, so that the next one skips them
SORTED_BY = "lakecdc.sorted-by"
#: summary: sort order of the rows in each file that a compaction wrote, regardless of the files' ranges
ROWS_SORTED_BY = "lakecdc.rows-sorted-by"
#: table property: JSON of the last sort order, and of the snapshots whose files follow it
SORTED_LAYOUT = "lakecdc.layout.sorted-by"
#: table property, set by users: comma-separated columns for the Bloom filters of rewritten files
BLOOM_FILTER_COLUMNS = "lakecdc.layout.bloom-filter-columns"
#: table property: columns whose older rows still lack the source's default, a JSON list
FILL = "lakecdc.columns-to-fill"
#: table property: id of the snapshot that last filled columns, and has the keys of its parent
FILLED = "lakecdc.columns-filled"
#: table property: JSON of the source's latest columns, each with its number, which survives a rename; null if the
#: source has no numbers
SOURCE_COLUMNS = "lakecdc.source-columns"
#: table property: JSON of the numbers of the table's key columns
SOURCE_KEY = "lakecdc.source-key"
#: table property: JSON of the source's columns before these, and of the place of the change in its log
SOURCE_COLUMNS_BEFORE = "lakecdc.source-columns-before"
#: table property: full name of the one source table whose events feed the table, if messages name it
SOURCE_TABLE = "lakecdc.source-table"
#: table property: JSON of the rules by which events are merged into the table's rows
MERGE = "lakecdc.merge"
#: table property: JSON of the history table that the table is aggregated from, and how
AGGREGATED = "lakecdc.aggregated"
#: table property: set while the view beside a table still has names from before a rename
VIEW_BEHIND = "lakecdc.view-behind"
#: summary of a side table: the target's state that the commit belongs to, to recognise an interrupted batch
SIDE_OF = "lakecdc.side-of"
#: summary: comma-separated ids of earlier snapshots with its position, which an erasure of rows has expired
CARRIED_BEFORE = "lakecdc.carried-before"
#: summary: JSON of the snapshots that differ from an erasing one only by erased rows, and of the number of these rows
ERASED_AFTER = "lakecdc.erased-after"
#: prefix of the short-lived branches on which a MERGE runs before it is published
MERGE_BRANCH_PREFIX = "lakecdc_merge_"
#: branch with a batch whose checks failed or are about to run
AUDIT_BRANCH = "lakecdc_audit"
#: summary: id of the snapshot that a short-lived branch began at; later ones are from its own statements
BRANCHED_FROM = "lakecdc.branched-from"
#: summary: JSON of the moment that a branch restores, its first snapshot and the applied events
MOMENT = "lakecdc.moment"
#: prefix of the short-lived branches on which a past moment is restored
MOMENT_BRANCH_PREFIX = "lakecdc_moment_"
#: table property: comma-separated short names of the engines that ``set_readers`` made the table readable for
READERS = "lakecdc.readers"
#: table property: source time of the last TRUNCATE of a target with ``on_truncate: mark``
TRUNCATED = "lakecdc.truncated-at"
#: table property: the column and the moment below which a table's rows have expired (see ``floor``)
EXPIRED_BELOW = "lakecdc.expired-below"
#: table property: JSON of the last erasure of rows, and whether it has ended (see ``erasure``)
ERASED = "lakecdc.erased"
#: prefix of the job in the name of a Spark application
APPLICATION_PREFIX = "lakecdc "
#: suffixes of the tables beside a target: its remembered deletes, hashes of its erased keys, and the files it has read
DELETES_SUFFIX = "_lakecdc_deletes"
ERASED_SUFFIX = "_lakecdc_erased"
FILES_SUFFIX = "_lakecdc_files"
#: name of the quarantine of a namespace
QUARANTINE = "lakecdc_quarantine"
#: name of the table that keeps the log of a namespace's failing tables
PARKED = "lakecdc_parked"
#: namespace of the tables of the lake as a whole: histories of jobs and of tables' health
LAKE_NAMESPACE = "lakecdc"
AUDIT = f"{LAKE_NAMESPACE}.audit"
HEALTH = f"{LAKE_NAMESPACE}.health"


def of_feed(name: str, feed: str) -> str:
    """Return the name of a feed's own table property, for tables that several jobs feed."""
    return f"{name}.{feed}" if feed else name


def is_lake_table(table: str) -> bool:
    """Check whether a table, ``namespace.name``, belongs to the lake as a whole."""
    return table.lower().startswith(f"{LAKE_NAMESPACE}.")


def is_side_table(table: str) -> bool:
    """Check whether a table has the name of one of lakecdc's own, beside a target or of the lake as a whole."""
    return is_lake_table(table) or table.lower().endswith(
        (DELETES_SUFFIX, ERASED_SUFFIX, FILES_SUFFIX, f".{QUARANTINE}", f".{PARKED}")
    )


def target_of(table: str) -> str:
    """Return the target of a side table, or any other table's own name."""
    for suffix in (DELETES_SUFFIX, ERASED_SUFFIX, FILES_SUFFIX):
        table = table.removesuffix(suffix)
    return table


def parked_of(table: str) -> str:
    """Return the table that keeps the parked log of a target."""
    return f"{table.rpartition('.')[0]}.{PARKED}"


def quarantine_of(table: str, named: str | None = None) -> str:
    """Return the quarantine of a target.

    :param named: the option ``quarantine_table``; ``{namespace}`` and ``{table}`` in it are the target's.
    """
    namespace, _, name = table.rpartition(".")
    return (named or f"{{namespace}}.{QUARANTINE}").format(namespace=namespace, table=name)


def side_tables(table: str) -> tuple[str, ...]:
    """Return the tables that ingestion may create beside a target; none of them need exist.

    Its history table is not included, because the target names it, nor is a quarantine with another name.
    """
    own = (f"{table}{suffix}" for suffix in (DELETES_SUFFIX, ERASED_SUFFIX, FILES_SUFFIX))
    return *own, quarantine_of(table), parked_of(table)


#: field ids of ``file_path`` and ``pos`` in position-delete files (Iceberg specification, reserved field ids)
PATH_ID, POSITION_ID = 2147483546, 2147483545


def moment_tag(moment: str) -> str:
    """Return the tag that keeps a restored moment of a table, which stays in place when users write to its branch.

    :param moment: name of the branch.
    """
    return f"{moment}-as-restored"


def refs_of_moment(moment: str, refs: Mapping[str, int]) -> list[str]:
    """Return the tag of a moment, and its branch unless users have written to that; empty if there is no such moment.

    :param refs: snapshots of the table's tags and branches.
    """
    tag = moment_tag(moment)
    return [name for name in (tag, moment) if tag in refs and refs.get(name) == refs[tag]]
