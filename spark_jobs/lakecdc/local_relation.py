"""Make DataFrames of small lists whose rows Spark knows when it plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.runtime.worker import without_pandas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HAND = "_hand"


def local_relation(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: str) -> DataFrame:
    """Convert a list of rows in the driver to a DataFrame; at most some tens of thousands.

    Spark knows the size of an Arrow table, but turns a list into an RDD that Python workers have to unpack, half a
    second each time.

    :param schema: names and types, as in ``id bigint, name string``.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    types = StructType.fromDDL(schema)
    assert isinstance(types, StructType)
    fields = to_arrow_schema(types)
    arrays = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(fields)]
    # PySpark accepts Arrow tables since 4.0, which its types do not declare
    table: Any = pa.Table.from_arrays(arrays, schema=fields)
    with without_pandas():
        return spark.createDataFrame(table, types)


def spread(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: str) -> DataFrame:
    """Distribute rows in turn over partitions, two for each core; see :func:`local_relation`."""
    hands = max(1, min(len(rows), 2 * spark.sparkContext.defaultParallelism))
    numbered = [(*row, number % hands) for number, row in enumerate(rows)]
    frame = local_relation(spark, numbered, f"{schema}, {_HAND} int")
    return frame.repartitionById(hands, _HAND).drop(_HAND)
