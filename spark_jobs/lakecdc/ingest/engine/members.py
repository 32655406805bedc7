"""Define msgspec structs for JSON objects that have the same members."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

# characters that msgspec refuses in names
_NO_NAME = re.compile(r'[\x00-\x1f"\\]')


def are_names(names: Iterable[str]) -> bool:
    """Check that msgspec takes all names as those of fields."""
    return _NO_NAME.search("".join(names)) is None


class Members:
    """A struct type with a field for each member of a sample, in its order.

    :param sample: an object that has them all, parsed.
    :param kinds: types of msgspec, by member; others have values of any kind.
    :param missing: members that the sample lacks, for which there is None; an object that has one has one too many.
    :ivar struct: a type with a field for each; an object with another member is refused.
    :ivar fields: names of the fields, by member.
    :ivar count: how many members an object has.
    :ivar nothing: a struct without values.
    """

    def __init__(self, sample: Mapping[str, Any], kinds: Mapping[str, Any], missing: Iterable[str] = ()) -> None:
        self.fields = {name: f"f{place}" for place, name in enumerate((*sample, *missing))}
        fields = [
            (field, kinds.get(name, Any), *(() if name in sample else (None,))) for name, field in self.fields.items()
        ]
        renamed = {field: name for name, field in self.fields.items()}
        self.struct: Any = msgspec.defstruct(
            "Members", fields, rename=renamed, forbid_unknown_fields=True, kw_only=True, gc=False
        )
        self.count, self.nothing = len(sample), self.struct(**dict.fromkeys(renamed))
        self._objects = [self.fields[n] for n, value in sample.items() if n not in kinds and isinstance(value, dict)]

    def values(self, name: str, structs: Iterable[Any]) -> list[Any]:
        """Return the values of a member; None of one that objects lack."""
        field = self.fields.get(name)
        return [None for _ in structs] if field is None else list(map(attrgetter(field), structs))

    def columns(self, structs: Iterable[Any]) -> dict[str, Sequence[Any]]:
        """Return the values of all members of some structs, by member."""
        values = zip(*map(msgspec.structs.astuple, structs), strict=True)
        return dict(zip(self.fields, values, strict=True))

    def counts_within(self, structs: Sequence[Any]) -> Iterator[list[int]]:
        """Yield how many members the values have that a member of each struct has; of None there are none.

        Those of objects in these values are not counted.
        """
        for field in self._objects:
            values = (getattr(struct, field, None) for struct in structs)
            yield [len(value) if type(value) is dict else 0 for value in values]
