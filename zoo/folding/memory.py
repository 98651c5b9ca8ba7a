"""How much memory a protein needs, before anything starts: the arrays that live at the same time, by their sizes."""

from __future__ import annotations

from typing import Any

import psutil
from ml_collections import ConfigDict

from zoo.folding.buckets import Size
from zoo.models.alphafold2.layers import LEAST_ROWS


def forecast_bytes(size: Size, config: ConfigDict) -> float:
    """Bytes at the worst moment of one recycle: a pair update in the main stack or in that of the further sequences."""
    c = config.model.embeddings_and_evoformer
    width = 2 if config.model.global_config.bfloat16 else 4
    pair = size.residues**2 * c.pair_channel * width
    main = (size.rows + 4) * size.residues * c.msa_channel * width
    further = size.further * size.residues * c.extra_msa_channel * width
    letters = size.further * size.residues * 25 * 4
    parameters = 95e6 * 4 * (c.evoformer_num_block / 48)
    points = 12 * size.residues**2 * 4 * 3 * 4  # distances of invariant point attention
    row = c.evoformer.msa_row_attention_with_pair_bias.num_head * size.residues**2 * 4
    chunks = 4 * max(config.model.global_config.chunk_bytes, LEAST_ROWS * row)
    # Fourteen arrays of the pairs' size live around a triangle multiplication (its sides and their product twice, as they are
    # turned for the sum, and what goes into and out of its loops), four of the alignment's in a row attention.
    return parameters + 14 * pair + max(4 * main + further, 4 * further + main + letters) + points + chunks


def free_bytes(device: Any) -> float:
    """Memory to plan with on a device: 80 % of what is free; of a CPU that of the host."""
    stats = None if device.platform == "cpu" else device.memory_stats()
    if stats and "bytes_limit" in stats:
        return 0.8 * float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return 0.8 * float(psutil.virtual_memory().available)


def longest_that_fits(size: Size, config: ConfigDict, free: float) -> int:
    """The most residues that fit with the same rows; 0 where none does."""
    low, high = 0, size.residues
    while high - low > 1:
        middle = (low + high) // 2
        fits = forecast_bytes(Size(middle, size.rows, size.further), config) <= free
        low, high = (middle, high) if fits else (low, middle)
    return low
