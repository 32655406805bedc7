"""Which manifests are worth rewriting: many, small, and more than their bytes need."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lakecdc.contract.options import RewriteManifestsOptions

# Iceberg's property and its default
_PROPERTY, _DEFAULT = "commit.manifest.target-size-bytes", 8 * 1024**2


@dataclass(frozen=True)
class Manifest:
    """One manifest of a snapshot.

    :param bytes: its size.
    :param deletes: whether it lists delete files.
    :param files: live files that it lists, as its manifest list has it.
    """

    path: str
    spec_id: int
    bytes: int
    deletes: bool
    files: int = 0


def manifest_target_bytes(properties: Mapping[str, str]) -> int:
    """Size of a manifest that Iceberg aims at.

    :param properties: the table's.
    """
    return int(properties.get(_PROPERTY, _DEFAULT))


def refusal(found: Sequence[Manifest], options: RewriteManifestsOptions, target: int) -> str | None:
    """Why the manifests may stay as they are; None if they should be rewritten.

    :param target: bytes per manifest that Iceberg aims at.
    """
    if len(found) < options.min_manifests:
        return f"{len(found)} manifests are fewer than {options.min_manifests}"
    average = sum(m.bytes for m in found) / max(1, len(found))
    if average >= options.min_average_bytes:
        return f"manifests have {average:.0f} bytes on average, not less than {options.min_average_bytes}"
    if not worthwhile_specs(found, target):
        return f"{len(found)} manifests are as few as their specs and the target size of {target} bytes allow"
    return None


def worthwhile_specs(found: Sequence[Manifest], target: int) -> list[int]:
    """Partition specs whose data or delete manifests could be fewer."""
    return sorted(
        {spec for (spec, _), bytes_ in _sizes(found).items() if len(bytes_) > math.ceil(sum(bytes_) / target)}
    )


def planned_manifests(found: Sequence[Manifest], specs: Collection[int], target: int) -> int:
    """How many manifests there are to be once those of some specs have been rewritten.

    :param target: bytes per manifest that Iceberg aims at.
    """
    return sum(
        math.ceil(sum(bytes_) / target) if spec in specs else len(bytes_) for (spec, _), bytes_ in _sizes(found).items()
    )


def _sizes(found: Sequence[Manifest]) -> dict[tuple[int, bool], list[int]]:
    sizes: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for manifest in found:
        sizes[manifest.spec_id, manifest.deletes].append(manifest.bytes)
    return sizes


def manifest_counts(found: Sequence[Manifest], moment: str) -> dict[str, int]:
    """Numbers of a table's manifests for the report.

    :param moment: ``before`` or ``after``.
    """
    return {
        f"manifests_{moment}": len(found),
        f"delete_manifests_{moment}": sum(m.deletes for m in found),
        f"average_bytes_{moment}": round(sum(m.bytes for m in found) / len(found)) if found else 0,
    }
