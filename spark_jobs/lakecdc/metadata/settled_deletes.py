"""Check from metadata alone whether ``rewrite_delete_files`` would leave all delete files unchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.metadata.live_files import Content, LiveFile

#: reason in the report if nothing is rewritten
NOTHING = "There are no equality deletes, and no position deletes to merge."


def are_settled(files: Iterable[LiveFile], format_version: int, options: RewriteDeleteFilesOptions) -> bool:
    """Check whether no delete file of a snapshot needs a rewrite.

    Each has rows, names one data file, may apply to it, and cannot be merged with others: those that the job's survey
    (``lakecdc.maintain.delete_files.plan``) leaves. Position deletes of a whole partition never count as settled,
    although the survey leaves some.

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
