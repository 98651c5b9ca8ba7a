"""What is to be predicted: each protein with its features, or why there is nothing to do for it."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from zoo.folding.buckets import Size
from zoo.folding.features import raw_features, read_sizes, size_of
from zoo.folding.inputs import Item, fingerprint
from zoo.folding.item_templates import item_templates
from zoo.folding.memory import forecast_bytes, free_bytes, longest_that_fits
from zoo.folding.options import PredictOptions
from zoo.folding.results import FAILED, SKIPPED, Outcome, finished_before
from zoo.folding.splitting import Split
from zoo.models.alphafold2.config import is_multimer, uses_templates
from zoo.proteins.problems import Problem


@dataclasses.dataclass(frozen=True)
class Job:
    """One protein with what the network will read of it.

    Attributes:
        item: what was asked.
        raw: raw features.
        size: without padding.
        key: what its result depends on.
        notes: on templates that were left out.
        templates: how each was laid over its chain.
        split: the devices that share it, where one does not hold it.
    """

    item: Item
    raw: dict[str, np.ndarray]
    size: Size
    key: str
    notes: tuple[Problem, ...] = ()
    templates: tuple[str, ...] = ()
    split: Split | None = None


def deciding(options: PredictOptions) -> dict[str, Any]:
    """The options on which a result depends; where things lie and how much is written does not matter."""
    silent = ("stage", "databases", "msa_server", "cpus", "memory_gib", "most_waste")
    return {name: value for name, value in dataclasses.asdict(options).items() if name not in silent}


def prepared(
    item: Item,
    configs: tuple[ConfigDict, ...],
    text: str,
    output: Path,
    options: PredictOptions,
) -> Job | Outcome:
    """The job of an item, or its outcome where that is known before anything runs."""
    multimer = is_multimer(configs[0])
    if item.duplicate_of is not None:
        return Outcome(item.name, SKIPPED, f"the same protein as {item.duplicate_of}")
    if item.failed:
        return Outcome(item.name, FAILED, item.reason)
    folder = output / item.name
    if folder.exists() and not folder.is_dir():
        return Outcome(item.name, FAILED, f"{folder} is a file, where the results would go; move it away")
    assert item.record is not None
    templates, notes = item_templates(item, options) if any(map(uses_templates, configs)) else ([], [])
    key = fingerprint(item, text, templates)
    before = finished_before(output / item.name, key)
    if before is not None:
        return before
    if len(item.record.chains) > 1 and not multimer:
        reason = f"{len(item.record.chains)} chains, but the models are of single chains; choose models=multimer"
        return Outcome(item.name, FAILED, reason)
    raw = raw_features(item, multimer, templates)
    size = functools.reduce(Size.cover, [size_of(raw, read_sizes(config, options)) for config in configs])
    split, reason = placed(size, configs[0], options)
    if reason:
        return Outcome(item.name, FAILED, reason)
    return Job(item, raw, size, key, tuple(notes), tuple(one.report for chain in templates for one in chain), split)


def placed(size: Size, config: ConfigDict, options: PredictOptions) -> tuple[Split | None, str]:
    """The devices that have to share a protein of this size, None where one holds it; and why it cannot be predicted."""
    devices = jax.local_devices()
    free = options.memory_gib * 2**30 if options.memory_gib else min(map(free_bytes, devices))
    needed = forecast_bytes(size, config)
    if needed <= free:
        return None, ""
    # Virtual devices of a processor have one memory together, unless it is told how much each may take.
    own = devices[0].platform != "cpu" or options.memory_gib is not None
    count = len(devices) if own else 1
    if count > 1 and needed <= free * count:
        return Split(tuple(devices), int(free)), ""
    longest = longest_that_fits(size, config, free * count)
    size_of = lambda value: f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
    fits = f"about {longest} residues would fit" if longest else "not even one residue would fit"
    fewer = ", or lower max_clusters and max_further" if size.rows + size.further > 2 else ""
    return None, (
        f"{size.residues} residues with {size.rows} + {size.further} rows need about {size_of(needed)}, "
        f"{size_of(free)} are free{f' on each of {count} devices' if count > 1 else ''}; {fits}{fewer}"
    )
