"""Delete debt: the cost for readers of changes written as delete files, and the part that can, or need not, be paid."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.metadata import totals
from lakecdc.metadata.file_facts import Content, LiveFile

#: totals that writers may omit (Iceberg specification, appendix F, optional snapshot summary fields)
_TOTALS = ("total-delete-files", "total-equality-deletes", "total-position-deletes")
#: ``unreadable``: Iceberg's readers fail on such a key; ``floating``: engines disagree on when two values are equal
Doubt = Literal["unreadable", "floating"]
_PRIMITIVE = re.compile(r"^(?!struct|list|map|variant|geometry|geography)")
_FLOATING = ("float", "double")
#: reason in the report if nothing is rewritten
NOTHING = "There are no equality deletes, and no position deletes to merge."


@dataclass(frozen=True)
class DeleteDebt:
    """Live delete files of a branch and their contents.

    :param equality_delete_files: every reader applies each of them to all older rows of its scope.
    :param equality_deletes: rows in them, that is keys.
    :param position_delete_files: position-delete files and deletion vectors.
    :param position_deletes: rows in them, that is positions.
    """

    equality_delete_files: int = 0
    equality_deletes: int = 0
    position_delete_files: int = 0
    position_deletes: int = 0

    def counts(self) -> dict[str, int]:
        """Return the four counts by name."""
        return asdict(self)

    def above(self, limits: DebtLimits) -> dict[str, int]:
        """Return the counts that exceed their limit."""
        highest = asdict(limits)
        return {
            name: n for name, n in self.counts().items() if (limit := highest[f"max_{name}"]) is not None and n > limit
        }


@dataclass(frozen=True)
class DebtLimits:
    """Limits of delete debt; None means no limit.

    :param max_equality_delete_files: limit of live equality-delete files.
    :param max_equality_deletes: limit of rows in them.
    :param max_position_delete_files: limit of live position-delete files and deletion vectors.
    :param max_position_deletes: limit of rows in them.
    :raises SpecError: no limit is set, or one is negative.
    """

    max_equality_delete_files: int | None = None
    max_equality_deletes: int | None = None
    max_position_delete_files: int | None = None
    max_position_deletes: int | None = None

    def __post_init__(self) -> None:
        given = [value for f in fields(self) if (value := getattr(self, f.name)) is not None]
        if not given or min(given) < 0:
            names = ", ".join(f.name for f in fields(self))
            raise SpecError(f"At least one of {names} must be given, and none of them may be negative.")


def from_summaries(summaries: Sequence[Mapping[str, str]]) -> DeleteDebt | None:
    """Compute a branch's debt from its snapshot summaries alone, from its head towards the root.

    :return: None if they are incomplete: a writer omitted the totals, or a snapshot that added existing equality
        deletes has expired.
    """
    if not summaries:
        return DeleteDebt()
    if any(name not in summaries[0] for name in _TOTALS):
        return None
    counts = totals.from_summary(summaries[0])
    equality_files = totals.counted_back(summaries)
    if equality_files is None:
        return None
    return DeleteDebt(
        equality_files, counts.equality_deletes, counts.delete_files - equality_files, counts.position_deletes
    )


def doubt(kind: str | None) -> Doubt | None:
    """Return why deletes by a column of a type (None: not top-level) may not be convertible; None if they are."""
    if kind is None or not _PRIMITIVE.match(kind):
        return "unreadable"
    return "floating" if kind in _FLOATING else None


def are_settled(files: Iterable[LiveFile], format_version: int, options: RewriteDeleteFilesOptions) -> bool:
    """Check from metadata alone whether ``rewrite_delete_files`` would leave all delete files unchanged.

    Each has rows, names one data file, may apply to it, and cannot be merged with others, as in the job's survey
    (``lakecdc.maintain.delete_files.survey``). Position deletes of a whole partition never count as settled, although
    the survey leaves some.

    :param files: all live files of the snapshot.
    """
    known = list(files)
    deletes = [file for file in known if file.content is not Content.DATA]
    if any(file.content is Content.EQUALITY_DELETES for file in deletes):
        return False
    if options.position_deletes == "keep":
        return True
    written = {file.location: file.sequence for file in known if file.content is Content.DATA}
    beside = Counter(file.location for file in deletes)
    for file in deletes:
        if file.location is None or not file.rows or written.get(file.location, file.sequence + 1) > file.sequence:
            return False
        several = beside[file.location] >= options.min_input_files
        if file.content is Content.POSITION_DELETES and (format_version >= 3 or several):
            return False
    return True
