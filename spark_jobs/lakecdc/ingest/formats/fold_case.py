"""Messages whose names of columns count whatever their case, as ``fold_case`` of a target has it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.ingest.formats.envelope import Format, Reading
    from lakecdc.ingest.formats.values import Field

_IMAGES = ("before", "after", "record_key", "old_key")


def folding(read: Format) -> Format:
    """A format with all names of columns in lower case; a row with two names that become one is left as it is."""

    def envelopes(messages: DataFrame, reading: Reading) -> DataFrame:
        found = read.envelopes(messages, reading)
        names = F.expr("transform(key_names, name -> lower(name))")
        return found.withColumns({**{image: F.expr(_lowered(image)) for image in _IMAGES}, "key_names": names})

    def fields(schema: str) -> tuple[Field, ...]:
        return tuple(replace(f, name=f.name.lower()) for f in read.fields(schema))

    def doubts(schema: str) -> tuple[str, ...]:
        return tuple(name.lower() for name in read.doubts(schema))

    return replace(read, envelopes=envelopes, fields=fields, doubts=doubts)


def _lowered(image: str) -> str:
    """SQL of a row image with its names in lower case."""
    members = f"CAST({image} AS map<string, variant>)"
    names = f"transform(map_keys({members}), name -> lower(name))"
    folded = f"to_variant_object(transform_keys({members}, (name, value) -> lower(name)))"
    alone = f"CASE WHEN size(array_distinct({names})) = size({names}) THEN {folded} ELSE {image} END"
    return f"CASE WHEN schema_of_variant({image}) LIKE 'OBJECT%' THEN {alone} ELSE {image} END"
