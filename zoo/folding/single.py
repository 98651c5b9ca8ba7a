"""One protein: every model and seed on it, ranked, relaxed, compared and written."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import flowaware_core as fa
from zoo.folding import plots
from zoo.folding.buckets import Bucket, Size
from zoo.folding.features import drawn_for, read_sizes, rows_of_alignment, shown_rows
from zoo.folding.inputs import Item
from zoo.folding.jobs import Job
from zoo.folding.models import Model
from zoo.folding.options import MARK, PredictOptions
from zoo.folding.predictor import NotFinite, Prediction, in_input_order
from zoo.folding.references import likeness, reference_chains
from zoo.folding.relaxing import relax_predictions
from zoo.folding.report import write_view
from zoo.folding.results import (
    DONE,
    FAILED,
    Outcome,
    emptied,
    write_arrays,
    write_prediction,
    write_status,
    write_text,
)
from zoo.models.alphafold2.config import is_multimer
from zoo.proteins.confidence import ranking


def one_protein(
    job: Job,
    bucket: Bucket,
    models: list[Model],
    options: PredictOptions,
    output: Path,
    seed: int,
    say: Callable[[str], None],
    stopped: Callable[[], bool],
) -> Outcome | None:
    """Every model and seed on one protein; what went wrong becomes its reason. None: stopped before all were through."""
    if stopped():
        return None
    folder, started = output / job.item.name, time.monotonic()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if emptied(folder):
            say(f"{job.item.name}: what an earlier run with other input or options left there is removed")
        done = predicted(job, bucket, models, options, folder, seed, stopped)
        if done is None:
            return None
        outcome = done
    except (NotFinite, fa.DoesNotFit) as error:
        outcome = Outcome(job.item.name, FAILED, str(error))
    except (RuntimeError, MemoryError, OSError) as error:
        outcome = Outcome(job.item.name, FAILED, f"{type(error).__name__}: {str(error).splitlines()[0][:300]}")
    outcome.row["seconds"] = round(time.monotonic() - started, 2)
    try:
        write_status(folder, outcome, job.key)
    except OSError as error:
        reason = outcome.reason or f"{folder} cannot be written: {error.strerror}"
        outcome = Outcome(job.item.name, FAILED, reason, outcome.row)
    say(
        f"{job.item.name}: {outcome.status}{': ' + outcome.reason if outcome.reason else ''} ({outcome.row['seconds']} s)"
    )
    return outcome


def predicted(
    job: Job,
    bucket: Bucket,
    models: list[Model],
    options: PredictOptions,
    folder: Path,
    seed: int,
    stopped: Callable[[], bool],
) -> Outcome | None:
    mark = MARK if options.random else ""
    assert job.item.record is not None
    lengths = [len(chain) for chain in job.item.record.chains]
    ranked: list[tuple[float, str, Prediction]] = []
    seconds: dict[str, float] = {}
    for (number, model), run in itertools.product(enumerate(models), range(options.seeds)):
        if ranked and stopped():
            return None
        own_seed = (seed + run) * len(models) + number
        stem, started = f"{model.name}_seed_{seed + run}", time.monotonic()
        found = run_model(job, bucket, model, options, own_seed)
        seconds[stem] = round(time.monotonic() - started, 3)
        write_prediction(folder, stem, job.item, found, mark, options.save_representations)
        if options.plots and plots.available():
            plots.write_plots(folder, stem, shown_rows(job.raw), found, lengths, mark)
        ranked.append((ranking(found.scores, model.predictor.model.multimer), stem, found))
        if options.stop_at_score is not None and ranked[-1][0] >= options.stop_at_score:
            break
    ranked.sort(key=lambda one: -one[0])
    chosen = {"none": 0, "best": 1, "all": len(ranked)}[options.relax]
    unrelaxed = relax_predictions(folder, job.item, [(stem, one) for _, stem, one in ranked[:chosen]], mark)
    for place, (_, stem, _) in enumerate(ranked):
        for ending in ("pdb", "cif"):
            sources = (folder / f"{kind}_{stem}.{ending}" for kind in ("relaxed", "unrelaxed"))
            source = next((path for path in sources if path.exists()), None)
            if source is not None:
                write_text(folder / f"ranked_{place}.{ending}", source.read_text())
    order = {"order": [stem for _, stem, _ in ranked], "scores": {stem: score for score, stem, _ in ranked}}
    write_text(folder / "ranking.json", json.dumps(order | ({"mark": mark} if mark else {}), indent=1))
    write_text(folder / "timings.json", json.dumps(seconds, indent=1))
    if job.templates or job.notes:
        places = [", ".join(filter(None, (Path(note.file).name, note.record))) for note in job.notes]
        notes = [f"{place}: {note.reason}" for place, note in zip(places, job.notes, strict=True)]
        write_text(folder / "templates.json", json.dumps({"used": job.templates, "left_out": notes}, indent=1))
    if options.save_features:
        write_arrays(folder / "features.npz", job.raw)
    score, stem, best = ranked[0]
    write_view(folder, job.item.name, best, np.repeat(np.arange(len(lengths)), lengths))
    row = {
        "residues": job.size.residues, "chains": len(lengths), "alignment_rows": rows_of_alignment(job.raw),
        "size": dataclasses.astuple(job.size), "model": stem, "ranking": round(score, 4), "recycles": best.recycles, "mark": mark,
        **{name: round(value, 4) for name, value in best.scores.items()},
        **compared(job.item, best, options.references),
    }  # fmt: skip
    return Outcome(job.item.name, DONE, unrelaxed, row)


def compared(item: Item, best: Prediction, references: Path | None) -> dict[str, float]:
    """How near the best prediction is to its experiment; empty where there is none."""
    if references is None:
        return {}
    chains, _ = reference_chains(item, references)
    return {name: round(value, 4) for name, value in likeness(item, best, chains).items()} if chains else {}


def run_model(job: Job, bucket: Bucket, model: Model, options: PredictOptions, seed: int) -> Prediction:
    """One model on one protein, its chains in the order of the input."""
    config = model.config.model
    sizes = read_sizes(model.config, options)
    further = max(min(bucket.size.further, sizes.further), 1)
    size = Size(bucket.size.residues, min(bucket.size.rows, sizes.clusters), further)
    recycles = config.num_recycle if options.recycles is None else options.recycles
    tolerance = options.recycle_tolerance
    tolerance = config.recycle_early_stop_tolerance if tolerance is None else tolerance
    draws = drawn_for(job.raw, model.config, options, size, seed)
    found = model.predictor.predict(
        model.params, draws, job.size.residues, size, recycles, tolerance, seed, options.save_recycles, None, job.split
    )
    assert job.item.record is not None
    return in_input_order(found, job.item.record.chains) if is_multimer(model.config) else found
