"""Decision whether Iceberg's reader can hold the equality deletes of a data file.

In each task the reader (1.12) makes a set of Java objects of all keys that apply to its data file, which never spills.
Iceberg's cache of delete files that the tasks of an executor share saves reading them, not the set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.bulk import PART, java_calls
from lakecdc.runtime.session import Setting, task_heap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.iceberg.table import Snapshot

#: heap of a key, estimated from its objects: a record, its values, a wrapper and an entry; a long takes less
KEY_BYTES = 250
# the rest is for rows, sorts and Spark itself
_SHARE = 4


def keys_that_fit(setting: Setting) -> int:
    """Return how many deleted keys a task may hold: those that fit into a quarter of its share of the heap."""
    return task_heap(setting) * 1024**2 // (_SHARE * KEY_BYTES)


def most_keys(spark: SparkSession) -> int:
    """Return :func:`keys_that_fit` of a running application."""
    return keys_that_fit(lambda name, unless_given: str(spark.conf.get(name, unless_given)))


def fit_surely(snapshot: Snapshot, most: int) -> bool:
    """Check by the snapshot summary alone whether all equality deletes have few keys; a missing total proves nothing.

    :param most: number of keys.
    """
    total = snapshot.summary.get("total-equality-deletes")
    return total is not None and int(total) <= most


def tasks_with_too_many_keys(spark: SparkSession, tasks: Any, most: int) -> list[int]:
    """Return the places of the scan tasks of a Java list whose equality deletes have more keys than ``most``."""
    calls, places = java_calls(spark), list[int]()
    deletes = calls.each_delete(*calls.content(calls.it, "content", "recordCount"))
    for begin in range(0, int(tasks.size()), PART):
        part = tasks.subList(begin, min(begin + PART, int(tasks.size())))
        applying = calls.rows(part, deletes)
        places += [begin + place for place, (of_task,) in enumerate(applying) if _keys(of_task) > most]
    return places


def _keys(deletes: list[list[Any]]) -> int:
    return sum(records for content, records in deletes if content == "EQUALITY_DELETES")
