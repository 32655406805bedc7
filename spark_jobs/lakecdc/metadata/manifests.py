"""Choice of manifests worth rewriting: many, small, and more than their bytes need."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lakecdc.contract.rewriting import RewriteManifestsOptions

# Iceberg's property and its default
_PROPERTY, _DEFAULT = "commit.manifest.target-size-bytes", 8 * 1024**2


@dataclass(frozen=True)
class Manifest:
    """A manifest of a snapshot; ``deletes``: it lists delete files, ``files``: live files by the manifest list."""

    path: str
    spec_id: int
    bytes: int
    deletes: bool
    files: int = 0


def manifest_target_bytes(properties: Mapping[str, str]) -> int:
    """Return Iceberg's target size of a manifest, by the table's properties."""
    return int(properties.get(_PROPERTY, _DEFAULT))


def refusal(current: Sequence[Manifest], options: RewriteManifestsOptions, target: int) -> str | None:
    """Return why the manifests need no rewrite, by Iceberg's target bytes per manifest; None if they do."""
    if len(current) < options.min_manifests:
        return f"{len(current)} manifests are fewer than {options.min_manifests}"
    average = sum(m.bytes for m in current) / max(1, len(current))
    if average >= options.min_average_bytes:
        return f"manifests have {average:.0f} bytes on average, not less than {options.min_average_bytes}"
    if not worthwhile_specs(current, target):
        return f"{len(current)} manifests are as few as their specs and the target size of {target} bytes allow"
    return None


def worthwhile_specs(current: Sequence[Manifest], target: int) -> list[int]:
    """Return the partition specs whose data or delete manifests could be fewer."""
    return sorted(
        {spec for (spec, _), bytes_ in _sizes(current).items() if len(bytes_) > math.ceil(sum(bytes_) / target)}
    )


def planned_manifests(current: Sequence[Manifest], specs: Collection[int], target: int) -> int:
    """Return the number of manifests after a rewrite of some specs."""
    return sum(
        math.ceil(sum(bytes_) / target) if spec in specs else len(bytes_)
        for (spec, _), bytes_ in _sizes(current).items()
    )


def _sizes(current: Sequence[Manifest]) -> dict[tuple[int, bool], list[int]]:
    sizes: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for manifest in current:
        sizes[manifest.spec_id, manifest.deletes].append(manifest.bytes)
    return sizes


def manifest_counts(current: Sequence[Manifest], moment: str) -> dict[str, int]:
    """Return numbers of a table's manifests ``before`` or ``after``, for the report."""
    return {
        f"manifests_{moment}": len(current),
        f"delete_manifests_{moment}": sum(m.deletes for m in current),
        f"average_bytes_{moment}": round(sum(m.bytes for m in current) / len(current)) if current else 0,
    }
