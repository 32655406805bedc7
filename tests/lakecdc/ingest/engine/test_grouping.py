"""Keys go to the tasks of their Iceberg partitions; order keys equal those of ``model.order``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakecdc.ingest.engine.fold import grouping
from lakecdc.ingest.engine.layout import order_texts
from lakecdc.model.order import order_key
from lakecdc.writer.partitions import PartitionColumn
from lakecdc.writer.transforms import Transform


def test_groups_have_whole_keys_of_one_partition() -> None:
    plan = grouping(["`lake`.system.bucket(3, `id`)"], ["id"], ["bigint"], 7)
    buckets = (PartitionColumn("k0", Transform("bucket", "id", 3)),)
    assert (plan.tasks, plan.partitioning, plan.spread) == (9, buckets, 3)
    keys = pa.table({"k0": pa.array(range(500), pa.int64()), "hash": pa.array([n * 7919 % 1009 for n in range(500)])})
    placed = plan.with_partitions(keys)
    groups = plan.groups(placed)
    assert set(groups) == set(range(9))
    assert all(len(set(placed["p0"].to_numpy()[groups == group])) == 1 for group in range(9))


def test_an_unknown_number_of_partitions_goes_to_few_tasks_each() -> None:
    plan = grouping(["region", "truncate(2, `na``me`)"], ["id", "region", "na`me"], ["bigint", "string", "string"], 32)
    assert (plan.tasks, plan.spread) == (32, 4)
    rows = {
        "k0": pa.array(range(3_000), pa.int64()),
        "k1": pa.array([f"region {n % 5}" for n in range(3_000)]),
        "k2": pa.array([f"{n % 7}{n}" for n in range(3_000)]),
        "hash": pa.array([n * 7919 % 100_003 for n in range(3_000)]),
    }
    placed = plan.with_partitions(pa.table(rows))
    groups = plan.groups(placed)
    of_partition: dict[tuple[str, str], set[int]] = {}
    for one, other, group in zip(placed["p0"].to_pylist(), placed["p1"].to_pylist(), groups, strict=True):
        of_partition.setdefault((one, other), set()).add(int(group))
    assert max(map(len, of_partition.values())) == 4 and len(set(groups)) > 16


def test_partitions_not_derived_from_the_key_are_grouped_by_hash() -> None:
    for expressions in (["bucket(4, other)"], ["days(at)", "bucket(2, id)"], ["id.part"]):
        assert grouping(expressions, ["id"], ["bigint"], 4).partitioning is None
    assert grouping(["bucket(4, id)"], ["id"], ["double"], 4).partitioning is None
    assert grouping([], ["id"], ["bigint"], 4).partitioning == ()


def test_order_keys_equal_those_of_the_model() -> None:
    parts = [(0, 0, 0, 0, 0), (1, 2, 8, 3, 4), (2**63 - 1, 2**63 - 1, 8, 2**48 - 1, 2**63 - 1), (255, 16, 0, 4095, 1)]
    texts = order_texts(513, *(np.array(column, np.int64) for column in zip(*parts, strict=True)))
    assert texts.to_pylist() == [order_key(513, *part) for part in parts]
