"""From an item of the work list to what the network reads in each recycle."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from zoo.folding.buckets import Size
from zoo.folding.inputs import Item
from zoo.folding.options import PredictOptions
from zoo.folding.predictor import to_size, with_ensemble
from zoo.models.alphafold2.config import is_multimer, uses_templates
from zoo.proteins import processed
from zoo.proteins.complexes import complex_features
from zoo.proteins.features import Features, alignment_features, sequence_features
from zoo.proteins.known_templates import Template, template_features


def raw_features(item: Item, multimer: bool, templates: Sequence[list[Template]] = ()) -> Features:
    """Raw features of the whole item, as the original's pipelines for monomers or complexes write them."""
    assert item.record is not None
    sequences = item.record.chains
    chains = [
        sequence_features(item.record.description, sequence)
        | alignment_features(rows)
        | template_features(templates[number] if templates else [], len(sequence))
        for number, (sequence, rows) in enumerate(zip(sequences, item.alignments, strict=True))
    ]
    if not multimer:
        return chains[0]
    # Rows that are paired by number stay as they are; of others equal ones are left out.
    sources = [rows_of(one) if item.paired_by_row else alignment_features([one]) for one in item.pairing]
    return complex_features(sequences, chains, sources, item.paired_by_row)


def rows_of(alignment: Any) -> Features:
    return {"msa": alignment.letters, "deletion_matrix_int": alignment.deletions}


def read_sizes(config: ConfigDict, options: PredictOptions) -> processed.Sizes:
    """How much of an alignment the model reads, by its configuration and the options."""
    if is_multimer(config):
        embeddings = config.model.embeddings_and_evoformer
        masking, clusters, further = embeddings.masked_msa, embeddings.num_msa, embeddings.num_extra_msa
        replaced = masking.replace_fraction
    else:
        common, evaluation = config.data.common, config.data.eval
        masking, clusters, further = common.masked_msa, evaluation.max_msa_clusters, common.max_extra_msa
        replaced = evaluation.masked_msa_replace_fraction
        if common.reduce_msa_clusters_by_max_templates and options.max_clusters is None:
            clusters -= evaluation.max_templates
    return processed.Sizes(
        clusters if options.max_clusters is None else options.max_clusters,
        further if options.max_further is None else options.max_further,
        config.data.eval.max_templates if uses_templates(config) else 0,
        replaced,
        **{name: masking[name] for name in ("profile_prob", "same_prob", "uniform_prob")},
    )


def size_of(raw: Features, sizes: processed.Sizes) -> Size:
    """Residues and rows that the network will read, without padding."""
    num_res = raw["msa"].shape[1]
    rows = rows_of_alignment(raw)
    return Size(num_res, min(rows, sizes.clusters), max(min(rows - sizes.clusters, sizes.further), 1))


def rows_of_alignment(raw: Features) -> int:
    """Without rows of padding."""
    return int(np.ravel(raw["num_alignments"])[0])


def shown_rows(raw: Features) -> np.ndarray:
    """The alignment [S, N] with 21 for gaps, whichever order its letters have, and without rows of padding."""
    return raw["msa"][: rows_of_alignment(raw)]


def drawn_for(
    raw: Features, config: ConfigDict, options: PredictOptions, size: Size, seed: int
) -> Callable[[int], dict[str, np.ndarray]]:
    """A function that gives the features of a recycle, padded to `size`; the same for the same seed.

    Args:
        raw: as `raw_features` gives them.
        config: of the model.
        options: how much of the alignment is read, and how often it is drawn.
        size: of the program, at least that of the protein.
        seed: of all draws.
    """
    multimer, sizes = is_multimer(config), read_sizes(config, options)
    fixed = fixed_features(raw, config, sizes)
    msa, deletions = (processed.complex_rows if multimer else processed.alignment_rows)(raw)
    number = 8 if options.models == "monomer_casp14" else config.data.eval.num_ensemble
    number = options.ensemble or number
    # Never more rows than there are, so that no draw depends on the size of the program.
    own = dataclasses.replace(sizes, clusters=min(sizes.clusters, size.rows, len(msa)), further=size.further)

    def drawn(recycle: int, member: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([seed, recycle, member])
        return processed.drawn_features(msa, deletions, own, processed.draw(msa, own, rng), multimer)

    def features(recycle: int) -> dict[str, np.ndarray]:
        draws = with_ensemble(drawn(recycle, member) for member in range(number))
        return to_size({**fixed, **draws}, size)

    return features


def fixed_features(raw: Features, config: ConfigDict, sizes: processed.Sizes) -> Features:
    """What does not depend on the draw."""
    if is_multimer(config):
        return processed.complex_fixed_features(raw)
    fixed = processed.monomer_features(raw)
    return fixed | processed.template_features(raw, sizes.templates) if uses_templates(config) else fixed
