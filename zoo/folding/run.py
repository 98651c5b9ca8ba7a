"""A whole set of proteins: checked, planned into buckets, predicted one by one; a failure stops only its own protein."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from zoo.errors import PartlyFailed, UserError
from zoo.folding import plots
from zoo.folding.buckets import Bucket, Size, cost, planned, spread
from zoo.folding.features import drawn_for, raw_features, read_sizes, rows_of_alignment, shown_rows, size_of
from zoo.folding.inputs import Item, fingerprint, read_items
from zoo.folding.item_templates import item_templates
from zoo.folding.memory import forecast_bytes, free_bytes, longest_that_fits
from zoo.folding.options import MARK, PredictOptions
from zoo.folding.predictor import NotFinite, Prediction, Predictor, in_input_order
from zoo.folding.references import likeness, reference_chains
from zoo.folding.relaxing import relax_predictions
from zoo.folding.report import write_report, write_view
from zoo.folding.results import (
    DONE,
    FAILED,
    SKIPPED,
    Outcome,
    finished_before,
    write_arrays,
    write_prediction,
    write_status,
    write_summary,
    write_text,
)
from zoo.folding.searching import with_alignments
from zoo.folding.spreading import imbalance, over_devices
from zoo.models.alphafold2.config import changed, is_multimer, preset, uses_templates
from zoo.models.alphafold2.convert import WHERE, draw, load
from zoo.proteins import relaxation
from zoo.proteins.confidence import ranking
from zoo.proteins.problems import Problem

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    config: ConfigDict
    predictor: Predictor
    params: Any


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
    """

    item: Item
    raw: dict[str, np.ndarray]
    size: Size
    key: str
    notes: tuple[Problem, ...] = ()
    templates: tuple[str, ...] = ()


def predict(source: Path, output: Path, options: PredictOptions, changes: dict[str, Any], seed: int, say: Say) -> None:
    """Predicts everything in `source` and writes it to `output`.

    Raises:
        UserError: nothing can be predicted as asked.
        PartlyFailed: some proteins failed; summary.csv says which and why.
    """
    names = options.model_names()
    if options.params is None and options.stage != "msa":
        raise UserError(f"params= is missing. {WHERE}")
    configs = {name: configured(name, options, changes) for name in names}
    if options.relax != "none":
        relaxation.library()
    items = read_items(source, options.alignments, options.msa == "single")
    report(items, say)
    output.mkdir(parents=True, exist_ok=True)
    items = with_alignments(items, options, output, say)
    if options.stage == "msa":
        return only_searched(items, say)
    keep_programs()
    text = json.dumps([deciding(options), changes, seed], sort_keys=True, default=str)
    outcomes: dict[str, Outcome] = {}
    jobs = [
        job
        for job in (prepared(item, tuple(configs.values()), text, outcomes, output, options) for item in items)
        if job
    ]
    for job in jobs:
        if job.templates or job.notes:
            why = f"; {len(job.notes)} left out, templates.json says why" if job.notes else ""
            say(f"{job.item.name}: {len(job.templates)} templates{why}")
        missing = reference_chains(job.item, options.references)[1] if options.references else []
        report([dataclasses.replace(job.item, problems=tuple(missing))], say)
    models = loaded(configs, options, say) if jobs else []
    sizes = [job.size for job in jobs]
    plan = planned(sizes, options.most_waste)
    if jobs and options.plots and not plots.available():
        say("note: no plots, as matplotlib is not installed: pip install matplotlib")
    if jobs:
        say(f"{len(jobs)} proteins in {len(plan.buckets)} buckets, {plan.waste:.0%} of the arithmetic on padding")
    ordered = [(jobs[index], bucket) for bucket in plan.buckets for index in bucket.members]
    lock = threading.Lock()

    def work(device: Any, members: Sequence[int]) -> None:
        here = [dataclasses.replace(model, params=jax.device_put(model.params, device)) for model in models]
        for job, bucket in (ordered[index] for index in members):
            outcome = one_protein(job, bucket, here, options, output, seed, say)
            with lock:
                outcomes[job.item.name] = outcome
                write_summary(output / "summary.csv", [outcomes[one.name] for one in items if one.name in outcomes])

    costs, devices = [cost(bucket.size) for _, bucket in ordered], jax.local_devices()
    if ordered and len(devices) > 1:
        uneven = imbalance(costs, spread(costs, len(devices)))
        say(f"spread over {len(devices)} devices, predicted imbalance {uneven:.0%}")
    over_devices(costs, devices, work)
    finish(items, outcomes, output, say)


def deciding(options: PredictOptions) -> dict[str, Any]:
    """The options on which a result depends; where things lie and how much is written does not matter."""
    silent = ("stage", "databases", "cpus", "memory_gib", "most_waste")
    return {name: value for name, value in dataclasses.asdict(options).items() if name not in silent}


def only_searched(items: list[Item], say: Say) -> None:
    """The end of `stage=msa`. Raises PartlyFailed."""
    failed = [item for item in items if item.failed]
    for item in failed:
        say(f"{item.name}: failed: {item.reason}")
    say(f"{len(items) - len(failed)} of {len(items)} proteins have their alignments; stage=infer goes on with them")
    if failed:
        raise PartlyFailed(f"{len(failed)} of {len(items)} proteins failed")


def keep_programs() -> None:
    """Compiled programs are kept on disk, so that a later run compiles nothing; JAX_COMPILATION_CACHE_DIR says where."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "flowaware-zoo" / "programs"))


def configured(name: str, options: PredictOptions, changes: dict[str, Any]) -> ConfigDict:
    return changed(preset(name), {**changes, **options.changes()})


def report(items: list[Item], say: Say) -> None:
    for item in items:
        for problem in item.problems:
            say(f"{'error' if problem.fatal else 'note'}: {problem}")


def prepared(
    item: Item,
    configs: tuple[ConfigDict, ...],
    text: str,
    outcomes: dict[str, Outcome],
    output: Path,
    options: PredictOptions,
) -> Job | None:
    """The job of an item, or None where its outcome is known before anything runs."""
    folder, multimer = output / item.name, is_multimer(configs[0])
    if item.duplicate_of is not None:
        outcomes[item.name] = Outcome(item.name, SKIPPED, f"the same protein as {item.duplicate_of}")
    elif item.failed:
        outcomes[item.name] = Outcome(item.name, FAILED, item.reason)
    else:
        assert item.record is not None
        templates, notes = item_templates(item, options) if any(map(uses_templates, configs)) else ([], [])
        key = fingerprint(item, text, templates)
        before = finished_before(folder, key)
        if before is not None:
            outcomes[item.name] = before
            return None
        if len(item.record.chains) > 1 and not multimer:
            reason = f"{len(item.record.chains)} chains, but the models are of single chains; choose models=multimer"
            outcomes[item.name] = Outcome(item.name, FAILED, reason)
        else:
            raw = raw_features(item, multimer, templates)
            sizes = [size_of(raw, read_sizes(config, options)) for config in configs]
            size = functools.reduce(Size.cover, sizes)
            reason = does_not_fit(size, configs[0], options)
            if not reason:
                return Job(
                    item, raw, size, key, tuple(notes), tuple(one.report for chain in templates for one in chain)
                )
            outcomes[item.name] = Outcome(item.name, FAILED, reason)
    write_status(folder, outcomes[item.name], "")
    return None


def does_not_fit(size: Size, config: ConfigDict, options: PredictOptions) -> str:
    free = options.memory_gib * 2**30 if options.memory_gib else min(map(free_bytes, jax.local_devices()))
    needed = forecast_bytes(size, config)
    if needed <= free:
        return ""
    longest = longest_that_fits(size, config, free)
    return (
        f"{size.residues} residues with {size.rows} + {size.further} rows need about {needed / 2**30:.1f} GiB, "
        f"{free / 2**30:.1f} GiB are free; about {longest} residues would fit, or lower max_clusters and max_further"
    )


def loaded(configs: dict[str, ConfigDict], options: PredictOptions, say: Say) -> list[Model]:
    """The models with their parameters; models of the same architecture share one predictor and its programs."""
    predictors: dict[str, Predictor] = {}
    models = []
    for name, config in configs.items():
        predictor = predictors.setdefault(config.model.to_json(), Predictor(config))
        shapes = predictor.model.parameter_shapes()
        if options.random:
            params, words = draw(shapes, 0), MARK
        else:
            params, keys = load(Path(str(options.params)), shapes, name)
            words = str(keys)
        say(f"{name}: {words}")
        models.append(Model(name, config, predictor, params))
    return models


def one_protein(
    job: Job, bucket: Bucket, models: list[Model], options: PredictOptions, output: Path, seed: int, say: Say
) -> Outcome:
    """Every model and seed on one protein; what went wrong becomes its reason."""
    folder, started = output / job.item.name, time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        outcome = predicted(job, bucket, models, options, folder, seed)
    except NotFinite as error:
        outcome = Outcome(job.item.name, FAILED, str(error))
    except (RuntimeError, MemoryError, OSError) as error:
        outcome = Outcome(job.item.name, FAILED, f"{type(error).__name__}: {str(error).splitlines()[0][:300]}")
    outcome.row["seconds"] = round(time.monotonic() - started, 2)
    write_status(folder, outcome, job.key)
    say(
        f"{job.item.name}: {outcome.status}{': ' + outcome.reason if outcome.reason else ''} ({outcome.row['seconds']} s)"
    )
    return outcome


def predicted(
    job: Job, bucket: Bucket, models: list[Model], options: PredictOptions, folder: Path, seed: int
) -> Outcome:
    mark = MARK if options.random else ""
    assert job.item.record is not None
    lengths = [len(chain) for chain in job.item.record.chains]
    ranked: list[tuple[float, str, Prediction]] = []
    seconds: dict[str, float] = {}
    for (number, model), run in itertools.product(enumerate(models), range(options.seeds)):
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
        notes = [f"{note.record}: {note.reason}" for note in job.notes]
        write_text(folder / "templates.json", json.dumps({"used": job.templates, "left_out": notes}, indent=1))
    if options.save_features:
        write_arrays(folder / "features.npz", job.raw)
    score, stem, best = ranked[0]
    write_view(folder, job.item.name, best, np.repeat(np.arange(len(lengths)), lengths))
    row = {
        "residues": job.size.residues, "chains": len(lengths), "alignment_rows": rows_of_alignment(job.raw),
        "model": stem, "ranking": round(score, 4), "recycles": best.recycles, "mark": mark,
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
        model.params, draws, job.size.residues, size, recycles, tolerance, seed, options.save_recycles, None
    )
    assert job.item.record is not None
    return in_input_order(found, job.item.record.chains) if is_multimer(model.config) else found


def finish(items: list[Item], outcomes: dict[str, Outcome], output: Path, say: Say) -> None:
    ordered = [outcomes[item.name] for item in items]
    write_summary(output / "summary.csv", ordered)
    write_report(output, ordered)
    count = {status: sum(one.status == status for one in ordered) for status in (DONE, FAILED, SKIPPED)}
    say(f"{count[DONE]} done, {count[FAILED]} failed, {count[SKIPPED]} skipped; {output / 'summary.csv'}")
    if count[FAILED]:
        raise PartlyFailed(
            f"{count[FAILED]} of {len(ordered)} proteins failed; the reasons are in {output / 'summary.csv'}"
        )
