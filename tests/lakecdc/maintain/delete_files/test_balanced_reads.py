"""Scans of a skewed table split evenly after the conversion of equality deletes, which every split had to read."""

from __future__ import annotations

from typing import Any

from lakecdc.iceberg.jvm import iterate
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert

_KIB = 1024
_SPLIT = 128 * _KIB


def splits(lake: Lake, name: str) -> list[dict[str, Any]]:
    """Return the bytes of data and of deletes that each split of a full scan reads."""
    scan = lake.table(name).java.newScan().option("read.split.target-size", str(_SPLIT))
    scan = scan.option("read.split.open-file-cost", str(4 * _KIB))
    sizes = []
    for group in iterate(scan.planTasks()):
        tasks = list(group.tasks())
        data = sum(task.length() for task in tasks)
        sizes.append({"data": data, "deletes": sum(task.sizeBytes() for task in tasks) - data})
    return sizes


def test_splits_of_a_skewed_table_are_even_after_conversion(lake: Lake) -> None:
    row_groups = {"write__parquet__row-group-size-bytes": str(64 * _KIB), "write__parquet__page-size-bytes": "4096"}
    name = create(lake, "id BIGINT NOT NULL, s STRING", 3, **row_groups)
    insert(
        lake, name, "SELECT id, concat(md5(string(id)), md5(string(id + 1)), sha(string(id))) AS s FROM range(20000)"
    )
    insert(lake, name, "SELECT 100000 + id AS id, 'small' AS s FROM range(8)", files=8)
    # all deletes have keys of the large file
    for number in range(4):
        change(lake, name, ["id"], f"SELECT id * 4 + {number} AS id FROM range(900)")
    deletes_before = sum(split["deletes"] for split in splits(lake, name))
    convert(lake, name)
    after = splits(lake, name)
    full = [split for split in after if split["data"] > _SPLIT // 2]
    assert len(full) >= 4 and len(after) - len(full) <= 1
    weights = [split["data"] + split["deletes"] for split in full]
    assert max(weights) <= 1.25 * sum(weights) / len(weights)
    assert sum(split["deletes"] for split in after) < deletes_before / 5
