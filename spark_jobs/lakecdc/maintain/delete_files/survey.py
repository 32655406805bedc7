"""Survey of a snapshot's position deletes from ``entries``, counted by Spark however many files there are."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.iceberg.live_deletes import DeleteKey
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.measure import referenced_file


@dataclass(frozen=True)
class PositionSurvey:
    """Position deletes of a snapshot to remove.

    :param merge: position-delete files to rewrite: several of one data file, those of a whole partition, and in format
        v3 all that are not deletion vectors.
    :param dangling: position-delete files and deletion vectors that apply to no live data file.
    :param rowless: position-delete files and deletion vectors that delete nothing.
    :param equality_without_rows: whether some equality deletes delete nothing; checked only where the summary shows
        that there are no others.
    """

    merge: frozenset[DeleteKey] = frozenset()
    dangling: frozenset[DeleteKey] = frozenset()
    rowless: frozenset[DeleteKey] = frozenset()
    equality_without_rows: bool = False

    @property
    def obsolete(self) -> frozenset[DeleteKey]:
        return self.merge | self.dangling | self.rowless


def survey(table: IcebergTable, snapshot: Snapshot, min_input_files: int, *, merge: bool = True) -> PositionSurvey:
    """Survey the live position deletes of a snapshot from metadata, unless the summary shows that there are none.

    :param min_input_files: number of position-delete files of one data file worth merging.
    :param merge: whether to remove position deletes at all.
    """
    # row totals do not reveal files without rows
    rowless_only = has_no_equality_deletes(snapshot)
    if not rowless_only and (not merge or snapshot.summary.get("total-position-deletes") == "0"):
        return PositionSurvey()
    entries = _entries(table, snapshot.id)
    equality = entries.where("content = 2").limit(1) if rowless_only else None
    if not merge:
        return PositionSurvey(equality_without_rows=equality is not None and not equality.isEmpty())
    deletes, data = entries.where("content = 1"), entries.where("content = 0")
    vectors = table.format_version >= 3
    single, shared = deletes.where("data_file IS NOT NULL"), deletes.where("data_file IS NULL")
    candidates = _of_one_file(single, data, vectors, min_input_files).unionByName(
        _of_a_partition(shared, data, vectors)
    )
    if equality is not None:
        candidates = candidates.unionByName(equality.select("location", "offset", F.lit("equality").alias("goes")))
    goes = candidates.where("goes IS NOT NULL").select("location", "offset", "goes").collect()
    kinds = ("merge", "dangling", "rowless", "equality")
    by = {kind: frozenset((r.location, r.offset) for r in goes if r.goes == kind) for kind in kinds}
    return PositionSurvey(by["merge"], by["dangling"], by["rowless"], bool(by["equality"]))


def has_no_equality_deletes(snapshot: Snapshot) -> bool:
    """Check by the snapshot summary alone; a missing total proves nothing."""
    return snapshot.summary.get("total-equality-deletes") == "0"


def _of_one_file(deletes: DataFrame, data: DataFrame, vectors: bool, min_input_files: int) -> DataFrame:
    files = data.select(F.col("location").alias("data_file"), F.col("sequence_number").alias("written_at"))
    legacy = F.lit(vectors) & (F.col("format") != "PUFFIN")
    siblings = deletes.groupBy("data_file").agg(F.count("*").alias("siblings"))
    joined = deletes.join(siblings, "data_file").join(files, "data_file", "left")
    applies = F.coalesce(F.col("written_at") <= F.col("sequence_number"), F.lit(False))
    several = (F.col("format") != "PUFFIN") & (F.col("siblings") >= min_input_files)
    return _goes(joined, applies, legacy | several)


def _of_a_partition(deletes: DataFrame, data: DataFrame, vectors: bool) -> DataFrame:
    """Select delete files of a whole partition, except a single one of a single data file."""
    per_scope = data.groupBy("scope").agg(F.min("sequence_number").alias("written_at"), F.count("*").alias("files"))
    siblings = deletes.groupBy("scope").agg(F.count("*").alias("siblings"))
    joined = deletes.join(siblings, "scope").join(per_scope, "scope", "left")
    applies = F.coalesce(F.col("written_at") <= F.col("sequence_number"), F.lit(False))
    return _goes(joined, applies, F.lit(vectors) | (F.col("files") > 1) | (F.col("siblings") > 1))


def _goes(deletes: DataFrame, applies: Column, merge: Column) -> DataFrame:
    goes = F.when(F.col("records") == 0, F.lit("rowless")).when(~applies, F.lit("dangling")).when(merge, F.lit("merge"))
    return deletes.select("location", "offset", goes.alias("goes"))


def _entries(table: IcebergTable, snapshot_id: int) -> DataFrame:
    entries = table.metadata("entries", snapshot_id).where("status < 2")
    partitioned = "partition" in entries.select("data_file.*").columns
    scope = F.struct("data_file.spec_id", *(["data_file.partition"] if partitioned else []))
    return entries.select(
        "sequence_number",
        F.col("data_file.content").alias("content"),
        F.col("data_file.file_path").alias("location"),
        F.col("data_file.content_offset").alias("offset"),
        F.col("data_file.file_format").alias("format"),
        F.col("data_file.record_count").alias("records"),
        scope.alias("scope"),
        F.expr(referenced_file(entries.schema)).alias("data_file"),
    )
