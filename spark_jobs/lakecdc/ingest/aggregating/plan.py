"""The plan of an aggregated table: part of its target, stored in a table property for jobs without the target."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from lakecdc.contract.merging import Merge
from lakecdc.contract.target import Cleaning, Target
from lakecdc.metadata import names


@dataclass(frozen=True)
class Plan:
    """The plan of an aggregated table.

    :param history: history table with the events.
    :param key: its columns that identify a row of the source.
    :param truncates: a TRUNCATE removes all earlier rows.
    """

    history: str
    key: tuple[str, ...]
    merge: Merge
    truncates: bool

    @classmethod
    def of(cls, target: Target) -> Plan:
        """Return the plan of a target whose merge has the engine ``aggregate``."""
        assert target.history_table and target.merge
        key = tuple(map((target.clean or Cleaning()).renamed, target.key))
        return cls(target.history_table, key, target.merge, target.on_truncate == "apply")

    @classmethod
    def read(cls, properties: Mapping[str, str]) -> Plan | None:
        """Return the plan of a table; None if it is not aggregated."""
        text = properties.get(names.AGGREGATED)
        if text is None:
            return None
        document = json.loads(text)
        merge = Merge("aggregate", columns=document["columns"], group_by=tuple(document["group_by"]))
        return cls(document["history"], tuple(document["key"]), merge, document["truncates"])

    @staticmethod
    def read_columns(properties: Mapping[str, str]) -> dict[str, str]:
        """Return the functions of an aggregated table's columns, including columns of former plans without one."""
        document = json.loads(properties[names.AGGREGATED])
        return dict.fromkeys(document.get("unfinished", ()), "") | document["columns"]

    def encode(self, former: Collection[str] | None = None) -> str:
        """Return the value of the property, equal for equal plans.

        :param former: columns of former plans, which the table has until its rows follow this plan; None if they do.
        """
        document = {"history": self.history, "key": self.key, "truncates": self.truncates}
        document |= {"group_by": self.merge.group_by, "columns": self.merge.columns}
        return json.dumps(document | ({"unfinished": sorted(former)} if former is not None else {}), sort_keys=True)

    def table_target(self, target: Target) -> Target:
        """Return a target of only the table, with the key of its rows."""
        return replace(
            target,
            key=self.merge.group_by,
            merge=None,
            history_table=None,
            history_partition_by=(),
            columns={},
            clean=None,
            properties={**target.properties, names.AGGREGATED: self.encode()},
        )
