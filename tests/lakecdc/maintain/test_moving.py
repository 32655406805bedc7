"""Grouping of files of older specs, and the number of their new files, from facts alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from lakecdc.iceberg.partition_fields import Fields, PartitionField
from lakecdc.maintain.older_specs import Destination, group_moving_files
from lakecdc.maintain.selection import Unit
from lakecdc.metadata.file_facts import FileFacts, Partitions

MB = 1024**2


def fields(buckets: int, *others: tuple[str, int, str]) -> Fields:
    return (PartitionField(f"id_bucket_{buckets}", 1, f"bucket[{buckets}]"), *(PartitionField(*o) for o in others))


def destination(buckets: int, *others: tuple[str, int, str]) -> Destination:
    return Destination(fields(buckets, *others), (f"bucket({buckets}, id)", *(name for name, _, _ in others)))


def partitions(spec_id: int, sizes: Mapping[str, Iterable[int]]) -> Partitions:
    """Return files of these megabytes in each partition."""
    return {
        (spec_id, name): [
            FileFacts(f"{name}{n}", spec_id, name, size * MB, size * MB, 1, sequence=n) for n, size in enumerate(mb)
        ]
        for name, mb in sizes.items()
    }


def bucket(number: int | None, of: int, **others: object) -> str:
    values = {} if number is None else {f"id_bucket_{of}": number}
    return json.dumps(values | others)


def names(units: Iterable[Unit]) -> list[set[str]]:
    return [{file.partition for file in unit.files} for unit in units]


def test_a_bucket_is_split_into_its_new_buckets() -> None:
    files = partitions(0, {bucket(0, 2): [300, 300], bucket(1, 2): [100]})
    units = group_moving_files(files, {0: fields(2)}, destination(4), 100 * MB, 1000 * MB)
    assert sorted(map(len, names(units))) == [1, 1]
    assert {(unit.outputs, unit.pieces, unit.piece) for unit in units} == {
        (6, 2, "bucket(4, id) div 2"),
        (2, 2, "bucket(4, id) div 2"),
    }


def test_buckets_are_merged_into_their_new_bucket() -> None:
    sizes = {bucket(number, 8, d=d): [30] for number in range(8) for d in (1, 2)}
    day = ("d", 2, "identity")
    units = group_moving_files(partitions(3, sizes), {3: fields(8, day)}, destination(2, day), 100 * MB, 1000 * MB)
    assert len(units) == 4 and all((unit.outputs, unit.pieces, unit.piece) == (1, 1, None) for unit in units)
    for unit in units:
        values = [json.loads(file.partition) for file in unit.files]
        assert len({(value["d"], value["id_bucket_8"] % 2) for value in values}) == 1 and len(values) == 4


def test_units_stay_below_the_size_of_a_commit() -> None:
    units = group_moving_files(
        partitions(0, {bucket(0, 2): [40] * 5}), {0: fields(2)}, destination(4), 100 * MB, 100 * MB
    )
    assert [unit.bytes // MB for unit in units] == [80, 80, 40]


def test_rows_of_other_specs_are_distributed_by_their_new_partition() -> None:
    files = partitions(0, {'{"h": 1}': [60], '{"h": 2}': [60]}) | partitions(1, {bucket(0, 3): [60]})
    specs: dict[int, Fields] = {0: (PartitionField("h", 2, "hour"),), 1: fields(3)}
    units = group_moving_files(files, specs, destination(4), 50 * MB, 1000 * MB)
    # 3 and 4 buckets are unrelated
    assert {(len(unit.files), unit.outputs, unit.pieces, unit.piece) for unit in units} == {
        (2, 2, 2, "xxhash64(bucket(4, id))"),
        (1, 1, 1, "xxhash64(bucket(4, id))"),
    }
    (unit,) = group_moving_files(partitions(1, {bucket(0, 3): [60]}), specs, Destination((), ()), 50 * MB, 1000 * MB)
    assert (unit.pieces, unit.piece) == (1, None)


def test_a_bucket_of_null_is_a_bucket() -> None:
    files = partitions(0, {bucket(None, 4): [1], bucket(2, 4): [1], bucket(0, 4): [1]})
    assert sorted(map(len, names(group_moving_files(files, {0: fields(4)}, destination(2), MB, MB * 10)))) == [1, 2]


def test_the_oldest_files_come_first() -> None:
    files = partitions(0, {bucket(0, 2): [1, 1, 1], bucket(1, 2): [1]})
    assert [len(unit.files) for unit in group_moving_files(files, {0: fields(2)}, destination(4), MB, 10 * MB)] == [
        1,
        3,
    ]
