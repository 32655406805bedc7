"""Files of rows and keys go to the application's folder in every table layout, and engines find them."""

from __future__ import annotations

from datetime import UTC, datetime
from re import fullmatch

import pytest

from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import stage_equality_deletes, stage_rows
from lakecdc.metadata.marked_folders import mark_in
from tests.conftest import Lake

_HASH = "[01]{4}/[01]{4}/[01]{4}/[01]{8}"
_HASHED = {"write.object-storage.enabled": "true"}
_FLAT = {**_HASHED, "write.object-storage.partitioned-paths": "false"}
_MARK = r"lakecdc-\w+-\d{8}T\d{6}Z-\w+"


@pytest.mark.parametrize(
    ("partitioned_by", "properties", "where"),
    [
        pytest.param("", {}, f"at/data/{_MARK}/[^/]+", id="plain", marks=pytest.mark.soak),
        pytest.param("v", {}, rf"at/data/{_MARK}/v=ab/[^/]+", id="partitioned", marks=pytest.mark.soak),
        pytest.param(
            "bucket(2, id)",
            {"write.data.path": "beside"},
            f"beside/{_MARK}/id_bucket=[01]/[^/]+",
            id="bucketed elsewhere",
        ),
        pytest.param("v", _HASHED, rf"at/data/{_HASH}/{_MARK}/{_HASH}/v=ab/[^/]+", id="object storage"),
        pytest.param(
            "v",
            _FLAT,
            f"at/data/{_HASH}-{_MARK}/{_HASH}-[^/]+",
            id="object storage without partitions",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_staged_files_are_in_a_folder_named_after_the_writer(
    lake: Lake, partitioned_by: str, properties: dict[str, str], where: str
) -> None:
    name = lake.new_name("staged")
    place = f"file:{lake.folder}/with blanks/{name}"
    texts = {key: value.replace("beside", f"{place}/beside") for key, value in properties.items()}
    listed = "".join(f", '{key}'='{value}'" for key, value in texts.items())
    partitioning = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
    lake.sql(
        f"CREATE TABLE lake.{name} (id bigint NOT NULL, v string) USING iceberg {partitioning} LOCATION '{place}/at' "
        f"TBLPROPERTIES ('format-version'='2'{listed})"
    )
    table = lake.table(name)
    key = ["id", *([partitioned_by] if partitioned_by == "v" else [])]
    rows = lake.spark.range(4).selectExpr("id", "'ab' AS v").coalesce(1)
    append_changes(table, RowChanges(stage_rows(table, rows)), PositionFence(None))
    keys = rows.where("id = 3").select(*key)
    deletes = stage_equality_deletes(table, keys, key, table.java.spec().specId())
    append_changes(table, RowChanges([], deletes), PositionFence(None))

    locations = [row[0] for row in table.metadata("files").select("file_path").collect()]
    at = f"{place}/"
    assert len(locations) > 1
    for location in locations:
        assert location.startswith(at)
        assert fullmatch(where, location.removeprefix(at)), location
        mark = mark_in(location)
        assert mark is not None
        context = lake.spark.sparkContext
        assert context.applicationId.replace("-", "").endswith(mark.application)
        assert datetime.fromisoformat(mark.started) == datetime.fromtimestamp(context.startTime // 1000, UTC)
    expected = [(number, "ab") for number in range(3)]
    assert sorted(map(tuple, table.read().collect())) == expected
    assert sorted(lake.duckdb_rows(name)) == expected
    # the table itself is unchanged
    assert lake.table(name).properties.get("write.data.path") == texts.get("write.data.path")
