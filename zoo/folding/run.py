"""A whole set of proteins: checked, planned into buckets, predicted one by one; a failure stops only its own protein."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

import flowaware_core as fa
from zoo.errors import PartlyFailed, Stopped, UserError
from zoo.folding import plots
from zoo.folding.buckets import Bucket, Size, cost, planned
from zoo.folding.inputs import Item, passed_over, read_items
from zoo.folding.item_templates import unreadable
from zoo.folding.jobs import Job, deciding, prepared
from zoo.folding.models import Model, checked, configured, loaded
from zoo.folding.options import PredictOptions
from zoo.folding.references import reference_chains
from zoo.folding.report import write_report
from zoo.folding.results import (
    DONE,
    FAILED,
    SKIPPED,
    WAITING,
    Outcome,
    write_status,
    write_summary,
)
from zoo.folding.searching import with_alignments
from zoo.folding.single import one_protein
from zoo.folding.spreading import over_devices
from zoo.models.alphafold2.convert import WHERE
from zoo.proteins import relaxation
from zoo.proteins.problems import Problem
from zoo.training.run_folder import check_place

Say = Callable[[str], None]


def predict(
    source: Path,
    output: Path,
    options: PredictOptions,
    changes: dict[str, Any],
    seed: int,
    say: Say,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Predicts everything in `source` and writes it to `output`.

    Args:
        stopped: asked before each protein and model: whether to end here.

    Raises:
        UserError: nothing can be predicted as asked.
        PartlyFailed: some proteins failed; summary.csv says which and why.
        Stopped: some proteins wait for the next run.
    """
    names = options.model_names()
    if options.params is None and options.stage != "msa":
        raise UserError(f"params= is missing. {WHERE}")
    configs = {name: configured(name, options, changes) for name in names}
    if options.relax != "none":
        relaxation.library()
    check_place(output, option="output")
    if output.resolve() == source.resolve():
        raise UserError(f"output={output} is the input; name another folder, or a new one inside it")
    items = read_items(source, options.alignments, options.msa == "single")
    report(passed_over(source), say)
    report([problem for item in items for problem in item.problems], say)
    told = {item.name for item in items if item.failed}
    if options.templates is not None:
        report(unreadable(options.templates), say)
    # Nothing is searched, and nothing written, for models that cannot run.
    networks = {} if options.stage == "msa" else checked(configs, options, say)
    if options.stage == "infer" and (options.databases or options.msa_server):
        say("note: stage=infer searches nothing; what databases= or msa_server= names is not looked at")
    items = with_alignments(items, options, output, say, stopped)
    if options.stage == "msa":
        return only_searched(items, output, say)
    keep_programs()
    text = json.dumps([deciding(options), changes, seed], sort_keys=True, default=str)
    found = [prepared(item, tuple(configs.values()), text, output, options) for item in items]
    jobs = [one for one in found if isinstance(one, Job)]
    for job in jobs:
        if job.templates or job.notes:
            why = f"; {len(job.notes)} left out, templates.json says why" if job.notes else ""
            say(f"{job.item.name}: {counted(len(job.templates), 'template')}{why}")
        missing = reference_chains(job.item, options.references)[1] if options.references else []
        report([dataclasses.replace(problem, fatal=False) for problem in missing], say)
    models = loaded(networks, options, say) if jobs else []
    outcomes = {one.name: one for one in found if isinstance(one, Outcome)}
    for outcome in outcomes.values():
        if outcome.status == FAILED and outcome.name not in told:
            say(f"{outcome.name}: failed: {outcome.reason}")
        if outcome.status != DONE:
            if (output / outcome.name / "ranking.json").is_file():
                say(f"note: {output / outcome.name} holds structures of an earlier run, of other input or options")
            with contextlib.suppress(OSError):  # where something else has its name; the table tells it, too
                write_status(output / outcome.name, outcome, "")
    if jobs and options.plots and not plots.available():
        say("note: no plots, as matplotlib is not installed: pip install matplotlib")
    lock = threading.Lock()

    def so_far() -> list[Outcome]:
        return [outcomes.get(item.name) or Outcome(item.name, WAITING) for item in items]

    def one(job: Job, bucket: Bucket, here: list[Model]) -> None:
        outcome = one_protein(job, bucket, here, options, output, seed, say, stopped)
        if outcome is None:
            return
        with lock:
            outcomes[job.item.name] = outcome
            write_summary(output / "summary.csv", so_far())

    # Those that were finished before are planned with, so that a run that goes on has the programs of the first.
    before = [Size(*outcome.row["size"]) for outcome in outcomes.values() if "size" in outcome.row]
    together([job for job in jobs if job.split is None], before, models, options.most_waste, one, say)
    for job in jobs:
        if job.split is not None:
            say(
                f"{job.item.name}: {job.size.residues} residues do not fit on one device; split over {len(job.split.devices)}"
            )
            one(job, Bucket(job.size.rounded(), (0,)), models)
    finish(so_far(), output, say)


def together(
    jobs: list[Job],
    before: list[Size],
    models: list[Model],
    most_waste: float,
    one: Callable[[Job, Bucket, list[Model]], None],
    say: Say,
) -> None:
    """Proteins that fit on one device, in buckets that share programs, spread over the devices by predicted cost."""
    if not jobs:
        return
    plan = planned([*(job.size for job in jobs), *before], most_waste)
    ordered = [(jobs[index], bucket) for bucket in plan.buckets for index in bucket.members if index < len(jobs)]
    buckets = len({id(bucket) for _, bucket in ordered})
    say(
        f"{counted(len(jobs), 'protein')} in {counted(buckets, 'bucket')}, "
        f"{abs(plan.waste):.0%} of the arithmetic on padding"
    )

    def work(device: Any, members: Sequence[int]) -> None:
        here = [dataclasses.replace(model, params=jax.device_put(model.params, device)) for model in models]
        for job, bucket in (ordered[index] for index in members):
            one(job, bucket, here)

    costs, devices = [cost(bucket.size) for _, bucket in ordered], jax.local_devices()
    if len(devices) > 1:
        uneven = fa.imbalance(costs, fa.spread(costs, len(devices)))
        say(f"spread over {len(devices)} devices, predicted imbalance {uneven:.0%}")
    over_devices(costs, devices, work)


def only_searched(items: list[Item], output: Path, say: Say) -> None:
    """The end of `stage=msa`, with its own summary.csv. Raises PartlyFailed."""
    failed = [item for item in items if item.failed]
    for item in failed:
        say(f"{item.name}: failed: {item.reason}")
    outcomes = [
        Outcome(item.name, FAILED, item.reason) if item.failed else Outcome(item.name, WAITING) for item in items
    ]
    output.mkdir(parents=True, exist_ok=True)
    write_summary(output / "summary.csv", outcomes)
    if (output / "index.html").exists():
        write_report(output, outcomes)
    say(
        f"{len(items) - len(failed)} of {len(items)} proteins have their alignments"
        + ("; stage=infer goes on with them" if len(failed) < len(items) else "")
    )
    if failed:
        raise PartlyFailed(f"{len(failed)} of {len(items)} proteins failed")


def keep_programs() -> None:
    """Compiled programs are kept on disk, so that a later run compiles nothing; JAX_COMPILATION_CACHE_DIR says where."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "flowaware-zoo" / "programs"))


def report(problems: Sequence[Problem], say: Say) -> None:
    for problem in problems:
        say(f"{'error' if problem.fatal else 'note'}: {problem}")


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def finish(ordered: list[Outcome], output: Path, say: Say) -> None:
    """The table and the report; says how many are done. Raises PartlyFailed and Stopped."""
    output.mkdir(parents=True, exist_ok=True)
    write_summary(output / "summary.csv", ordered)
    write_report(output, ordered)
    count = {status: sum(one.status == status for one in ordered) for status in (DONE, FAILED, SKIPPED)}
    names = {one.name for one in ordered}
    old = sorted(path.parent.name for path in output.glob("*/status.json") if path.parent.name not in names)
    if old:
        say(f"note: {output} also holds results of proteins that are no longer in the input: {', '.join(old)}")
    say(f"{count[DONE]} done, {count[FAILED]} failed, {count[SKIPPED]} skipped; {output / 'summary.csv'}")
    waiting = sum(one.status == WAITING for one in ordered)
    if waiting:
        raise Stopped(f"{waiting} of {len(ordered)} proteins wait; the same command goes on with them")
    if count[FAILED]:
        raise PartlyFailed(
            f"{count[FAILED]} of {len(ordered)} proteins failed; the reasons are in {output / 'summary.csv'}"
        )
