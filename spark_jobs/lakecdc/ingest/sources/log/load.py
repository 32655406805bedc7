"""Full loads in parts: each part is committed with how far the load has come, and a later run goes on from there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from lakecdc.contract.errors import LakecdcError

if TYPE_CHECKING:
    from lakecdc.ingest.batch import Batch


def rounds_of_parts(
    parts: Mapping[str, Iterator[Batch]],
    failed: Callable[[str], bool],
    refuse: Callable[[str, LakecdcError], None],
    asking: Callable[[], AbstractContextManager[None]],
) -> Iterator[list[Batch]]:
    """Yield rounds of full loads, with a part of every table that has parts left.

    :param parts: of each table's load.
    :param failed: whether a table takes no more batches.
    :param refuse: takes a table whose load cannot go on, which stops alone, and why.
    :param asking: explains what the server refuses meanwhile.
    """
    left = dict(parts)
    while left:
        batches = []
        for name in [*left]:
            batch = None
            try:
                with asking():
                    batch = None if failed(name) else next(left[name], None)
            except LakecdcError as error:
                refuse(name, error)
            if batch is None:
                del left[name]
            else:
                batches.append(batch)
        if batches:
            yield batches


def fingerprint(known: object) -> str:
    """Return a short text that changes with what a load depends on."""
    return hashlib.sha1(repr(known).encode(), usedforsecurity=False).hexdigest()[:16]
