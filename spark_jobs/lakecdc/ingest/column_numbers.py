"""Numbers of a source's columns, which survive renames."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

Columns = Mapping[str, int | None]


def renamed(known: Columns, now: Columns, swapped: bool = False) -> dict[str, str]:
    """Return the new name of each renamed column; if ``swapped``, also names that another column had before."""
    names_now = {number: name for name, number in now.items() if number is not None and (swapped or name not in known)}
    return {
        name: names_now[number]
        for name, number in known.items()
        if number is not None and number in names_now and now.get(name) != number
    }


def identified(described: Sequence[str], known: Columns, catalog: Columns) -> dict[str, int | None]:
    """Return the numbers of the columns named in the log, while the catalog may be ahead of the log.

    The log lists columns by number, which identifies names that another column had before. A name that neither
    ``known`` nor ``catalog`` has belongs to the column whose number fits its place.

    :param described: names in one description of the table in the log.
    :param known: numbers of the columns when the log was last read.
    :param catalog: current numbers of the columns.
    """
    there = {catalog.get(name) for name in described}
    guess: dict[str, int | None] = {}
    for name in described:
        before, now = known.get(name), catalog.get(name)
        reused = before is not None and now is not None and before in there
        guess[name] = now if before is None or reused else before
    others = ({**guess, **_among(described, catalog)}, {**guess, **_among(described, known)})
    numbers = next((numbers for numbers in (guess, *others) if ascend(numbers)), guess)
    return {**numbers, **_in_gaps(described, numbers, {*known.values()} & {*catalog.values()})}


def _among(described: Sequence[str], columns: Columns) -> dict[str, int | None]:
    return {name: columns[name] for name in described if columns.get(name) is not None}


def ascend(numbers: Columns) -> bool:
    """Check whether columns are in the order of their numbers, as in a log."""
    known = [number for number in numbers.values() if number is not None]
    return known == sorted({*known})


def _in_gaps(described: Sequence[str], numbers: Columns, lasting: set[int | None]) -> dict[str, int]:
    """Return numbers of ``lasting`` columns for names without one, if a gap fits as many as it has names."""
    left = {number for number in lasting - {*numbers.values()} if number is not None}
    filled: dict[str, int] = {}
    low, at = 0, 0
    for unknown, group in itertools.groupby(described, lambda name: numbers[name] is None):
        names = [*group]
        at += len(names)
        if not unknown:
            low = numbers[names[-1]] or 0
            continue
        high = numbers[described[at]] if at < len(described) else None
        fitting = sorted(number for number in left if low < number and (high is None or number < high))
        if len(fitting) == len(names):
            filled |= zip(names, fitting, strict=True)
    return filled


def places(numbers: Columns, columns: Sequence[int]) -> tuple[int, ...]:
    """Return the places of columns in a description whose columns have these numbers, in order; empty if unknown."""
    order = [*numbers.values()]
    known = [number for number in order if number is not None]
    sure = all(
        order.count(n) == 1 and all((m < n) == (i < known.index(n)) for i, m in enumerate(known)) for n in columns
    )
    return tuple(order.index(number) for number in columns) if sure else ()
