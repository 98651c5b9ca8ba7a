"""One training with a program that is ready: its state, its batches, its folder, and the loop over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zoo.errors import Stopped, UserError
from zoo.training import loop, state
from zoo.training.batches import globally, rows_of_process
from zoo.training.checkpoints import BEST, Checkpoints
from zoo.training.evaluation import evaluator
from zoo.training.job import KEPT_CHECKPOINTS, Job, rows_of
from zoo.training.judge import Judge, score
from zoo.training.metrics import Journal
from zoo.training.origin import OWED, Origin, record
from zoo.training.program import Program
from zoo.training.progress import screen
from zoo.training.stopping import agreement

REHEARSED_EVALUATION_BATCHES = 2
"""A rehearsal shows that evaluation works; its figures mean nothing, so it does not go through the whole split."""


def fit(job: Job, program: Program, stopped: Callable[[], bool]) -> Origin | None:
    """Trains to the job's last step and saves.

    Args:
        job: what to train, from where to where.
        program: the compiled step, of the sizes to train with.
        stopped: says whether this process was told to stop.

    Returns:
        None; or where the recipe has outgrown this program before the last step, from where its next one goes on.

    Raises:
        Stopped: a signal came; the state is saved.
        UserError: the loss is not finite, or the disk is full.
    """
    config, folder, start = job.config, job.folder, job.origin.step
    _, batch_shardings = program.step.in_shardings
    examples = rows_of(program.task)
    rows = rows_of_process(batch_shardings, program.task.args[1])
    initial = begin(job, program)
    make_room(job)
    for name, content in getattr(job.recipe, "companions", dict)().items():
        folder.write(name, content)
    checkpoints = Checkpoints(folder.checkpoints, keep=KEPT_CHECKPOINTS, best=score)
    judge = Judge.of(getattr(job.recipe, "training", None), job.origin.meta)
    facts: Callable[[], dict[str, Any]] = getattr(job.recipe, "facts", dict)  # what a recipe wants remembered
    meta = {**record(config), "plan_hash": program.plan.hash, "global_batch": examples, "level": job.level}
    local = job.recipe.batches("train", config.seed, start, examples, (rows.index, rows.count))
    most = REHEARSED_EVALUATION_BATCHES if job.rehearses else None
    stopping = agreement(stopped, program.step.mesh)
    deeds = loop.Deeds(
        step=program.compiled,
        evaluate=evaluator(job.recipe, batch_shardings, examples, rows, stopping, most),
        save=lambda step, value, owed: checkpoints.save(
            step, value, facts() | meta | {"cursor": step} | judge.meta() | ({OWED: True} if owed else {})
        ),
        stopping=stopping,
        improved=judge.improved,
        enough=lambda: judge.is_enough,
        outgrown=getattr(job.recipe, "outgrown", lambda metrics: False),
    )
    periods = loop.Periods(job.steps, config.eval_every, config.checkpoint_every, examples)
    said = {"level": job.level, "global_batch": examples}
    shows = screen(start, job.steps, folder.writes)
    listener = job.recipe.listener(folder.path, start) if folder.writes and hasattr(job.recipe, "listener") else None
    try:
        with Journal(folder, shows, said, start, config.log_every, listener) as journal:
            final, ending, last = loop.run(
                initial, start, globally(local, batch_shardings, rows), deeds, periods, journal, job.origin.owed
            )
    except UserError:
        checkpoints.wait()
        raise
    except loop.NotFinite as bad:
        checkpoints.wait()
        raise UserError(last_good(bad, checkpoints)) from None
    checkpoints.wait()
    if ending is loop.Ending.STOPPED:
        saved = folder.checkpoints / str(last)
        raise Stopped(f"step {last} of {job.steps} is saved in {saved}; the same command goes on from there")
    if ending is loop.Ending.OUTGROWN:
        return Origin(last, checkpoints, checkpoints.meta(last))
    if hasattr(job.recipe, "export"):
        whole = state.gathered(final)
        if folder.writes:
            job.say(job.recipe.export(whole, folder.path))
    if last < job.steps:
        job.say(f"ended early: {judge.metric} was no better than {judge.best:.4g} for {judge.waited} evaluations")
    if judge.best is not None and judge.best_step != last:
        job.say(f"the best {judge.metric}, {judge.best:.4g}, is of step {judge.best_step}: {folder.path / BEST}")
    job.say(f"finished {last} steps; the last checkpoint is {folder.checkpoints / str(last)}")
    return None


def begin(job: Job, program: Program) -> Any:
    """The state to start from, on the devices as the plan wants it."""
    abstract, shardings = program.task.args[0], program.step.in_shardings[0]
    config, start = job.config, job.origin
    if start.source is not None:
        job.say(f"resumed after step {start.step} from {start.source.directory / str(start.step)}")
        if start.meta.get("plan_hash") != program.plan.hash:
            job.say("the plan is not the checkpoint's: the same training, up to rounding (sums in another order)")
        before, now = start.meta.get("global_batch"), rows_of(program.task)
        if before != now:
            job.say(f"a batch has {now} examples and had {before}: from here on the training is another one")
        return state.resumed(start.source, start.step, abstract, shardings)
    if config.init_from is not None:
        job.say(f"starting from the parameters of {config.init_from}")
        return state.begun_from(config.init_from, job.recipe, config.seed, abstract, shardings, job.say)
    return state.born(job.recipe, config.seed, shardings)


def make_room(job: Job) -> None:
    """Moves aside what an earlier run left and this one does not go on from: a later resume would take it for ours."""
    source = job.origin.source
    own = source is not None and source.directory.resolve() == job.folder.checkpoints.resolve()
    place = job.folder.set_aside(job.origin.step if own else 0)
    if place is not None:
        job.say(f"what an earlier run left in {job.folder.path} is now in {place}")


def last_good(bad: loop.NotFinite, checkpoints: Checkpoints) -> str:
    """What to say when a number is not finite.

    The loss of step N is the first that is computed from the state after step N - 1, so a checkpoint of it is suspect.
    """
    good = [step for step in checkpoints.steps() if step < bad.step - 1]
    sentence = f"{bad.name} is {bad.value} at step {bad.step}, and training stopped"
    change = "change the recipe (a smaller recipe.optimizer.learning_rate, say)"
    if not good:
        return f"{sentence}; there is no checkpoint from before: {change} and start again with resume=never"
    place = checkpoints.directory / str(good[-1])
    again = f"{change} and go on with resume={place} allow_changed_recipe=true"
    return f"{sentence}; the last good checkpoint is {place}: {again}"
