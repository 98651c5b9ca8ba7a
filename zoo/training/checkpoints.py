"""The checkpoints of a run: one folder per step, complete or not there at all.

    checkpoints/20/arrays/         values of the arrays (zoo/training/arrays.py)
                   leaves.json     name, kind, shape, dtype and placement of every leaf of the state
                   meta.json       step, versions and what the run adds: plan hash, recipe, seed, data cursor, level
                   manifest.json   size and SHA-256 of every file, written last

With several processes all of them call every method that saves, waits, verifies or restores, in the same order; the
folder is on a file system that all of them see, and process 0 commits.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import json
import os
import platform
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax

from zoo.errors import MENDABLE, UserError
from zoo.models.weight_files import SUFFIXES
from zoo.training import agreement, arrays, leaves, manifest, step_folders
from zoo.training.leaves import Leaf

CHECKPOINTS = "checkpoints"
"""What a run calls the folder of its steps."""
BEST = "best"
"""RUN/best names the checkpoint of a run with the best evaluation; it is no folder."""

_unfinished: weakref.WeakSet[Checkpoints] = weakref.WeakSet()

VERSIONED = ("flowaware-zoo", "jax", "jaxlib", "numpy", "orbax-checkpoint", "tensorstore")


class Checkpoints:
    """Saves and restores states below `directory`.

    Args:
        directory: the folder that holds one folder per step; made by the first save.
        keep: how many of the newest steps stay once a newer one is complete; None keeps all.
        best: a figure of a step's meta, None where it has none; the first step where it is highest stays as well.
    """

    def __init__(self, directory: Path, keep: int | None = 3, best: Callable[[dict], float | None] | None = None):
        assert keep is None or keep >= 1, f"keep={keep} would delete the step that was just saved"
        self.directory = Path(directory)
        self._keep, self._best = keep, best
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        _unfinished.add(self)

    def save(self, step: int, state: Any, meta: dict) -> None:
        """Starts to save and returns once the values are copied to the host: the state may be donated right away.

        A save that is still under way is waited for first. A step that is already there is replaced.

        Args:
            step: number of steps done.
            state: any pytree (zoo/training/leaves.py says which leaves).
            meta: JSON values; `step` and `versions` are added.

        Raises:
            UserError: the disk is full or cannot be written, now or in the save before; nothing of the step is left.
            ValueError: a leaf that cannot be saved.
        """
        self.wait()
        records, values = leaves.split(state)
        texts = {
            "meta.json": json.dumps({**meta, "step": step, "versions": versions()}, indent=1),
            "leaves.json": json.dumps({"leaves": [record.to_json() for record in records]}, indent=1),
        }
        folder = self.directory / f"{step}{step_folders.WRITING}"
        with self._mended(), agreement.all_or_none("start the checkpoint"), _removed_on_failure(folder):
            if jax.process_index() == 0:
                step_folders.begin(self.directory, step, sum(record.num_bytes for record in records))
                for name, text in texts.items():
                    (folder / name).write_text(text)
        with self._mended(), _removed_on_failure(folder):
            finish = arrays.write(folder / "arrays", values)
        self._pending = self._worker.submit(self._commit, step, folder, finish)

    def wait(self) -> None:
        """Returns when the last save is complete on all processes. Raises UserError as `save` does.

        A process whose own part failed raises at once: the others may wait for that part until it has left.
        """
        if self._pending is None:
            return
        error = self._pending.exception()
        self._pending = None
        with self._mended():
            if error is not None:
                raise error
        agreement.smallest(0)  # process 0 comes here once the manifest is written

    def steps(self) -> list[int]:
        """The complete steps, ascending; empty when there is none or no such folder."""
        return step_folders.complete(self.directory)

    def latest(self) -> int | None:
        """The newest complete step."""
        return max(self.steps(), default=None)

    def meta(self, step: int) -> dict:
        """What the run said about the step when it saved it, plus `step` and `versions`."""
        return self._document(step, "meta.json")

    def records(self, step: int) -> dict[str, Leaf]:
        """The records of the saved leaves by name, in the order of the state."""
        return {record["name"]: Leaf.from_json(record) for record in self._document(step, "leaves.json")["leaves"]}

    def restore(self, step: int, abstract_state: Any, partial: bool = False) -> tuple[Any, dict]:
        """The state and meta of a step, after every file was held against the manifest.

        Each device reads its own shards alone, so no array is ever whole on one device unless its sharding says so.

        Args:
            step: one of `steps()`.
            abstract_state: the tree with shapes and dtypes; a leaf's `sharding` says where it goes: any mesh and
                devices, whatever it was when saved. Without one it goes to the first device; a NumPy leaf stays on
                the host.
            partial: whether the checkpoint may hold leaves that the abstract state does not ask for.

        Raises:
            UserError: no such step; a damaged file (named, with the previous good step); another tree, shape or dtype.
        """
        self.verify(step)
        records = self.records(step)
        values = arrays.read(self._folder(step) / "arrays", leaves.wanted(records, abstract_state, partial))
        return leaves.join(records, abstract_state, values), self.meta(step)

    def check(self, step: int, abstract_state: Any, partial: bool = False) -> None:
        """Raises UserError as `restore` would where a step holds another tree, shapes or dtypes; reads no array."""
        leaves.check(self.records(step), abstract_state, partial)

    def verify(self, step: int) -> None:
        """Reads every file of the step, the processes sharing the work. Raises UserError naming a damaged one."""
        self._require(step)
        damage = _damage(self._folder(step))
        if damage is None:
            return
        older = [other for other in reversed(self.steps()) if other < step]
        good = next((other for other in older if _damage(self._folder(other)) is None), None)
        advice = "there is no good one before it"
        if good is not None:
            advice = f"step {good} before it is good: resume={self._folder(good)}, or delete {self._folder(step)}"
        raise UserError(f"checkpoint {self._folder(step)} is damaged: {damage}; {advice}")

    def describe(self, step: int) -> str:
        """The step in words: meta, then a line per leaf with shape, dtype and placement when saved."""
        meta, records = self.meta(step), self.records(step)
        total = sum(record.num_bytes for record in records.values())
        head = [f"checkpoint {self._folder(step)}", f"step {step}, {len(records)} leaves, {total / 2**20:.2f} MiB"]
        facts = [f"{key}: {json.dumps(value)}" for key, value in meta.items() if key != "step"]
        width = max((len(name) for name in records), default=0)
        return "\n".join(head + facts + ["leaves:"] + [f"  {name:{width}}  {one}" for name, one in records.items()])

    def _folder(self, step: int) -> Path:
        return self.directory / str(step)

    def _require(self, step: int) -> None:
        if not step_folders.is_complete(self._folder(step)):
            raise UserError(
                f"no complete checkpoint of step {step} in {self.directory}; there are: {self._others(step)}"
            )

    def _others(self, step: int) -> str:
        return ", ".join(str(other) for other in self.steps() if other != step) or "none"

    def _document(self, step: int, name: str) -> dict:
        """One JSON file, after it was held against the manifest; not collective, any process may ask."""
        self._require(step)
        folder = self._folder(step)
        listed = manifest.read(folder)
        bad = [listed] if isinstance(listed, manifest.Damage) else manifest.damages(folder, [(name, listed[name])])
        if bad:
            raise UserError(
                f"checkpoint {folder} is damaged: {bad[0]}; name another step, there are: {self._others(step)}"
            )
        return json.loads((folder / name).read_bytes())

    def _commit(self, step: int, folder: Path, finish: Callable[[], None]) -> None:
        """In the background: once all processes have written, process 0 completes the step, then retires old ones."""
        with _removed_on_failure(folder):
            finish()
            if jax.process_index() == 0:
                manifest.write(folder)
                step_folders.publish(self.directory, step)
        if jax.process_index() == 0:
            step_folders.retire(self.directory, self._dispensable(step))

    def _dispensable(self, step: int) -> list[int]:
        """Steps to delete now that `step` is complete. Newer ones, of a past that a user went back behind, stay."""
        past = [other for other in self.steps() if other <= step]
        kept = set(past if self._keep is None else past[-self._keep :])
        if self._best is not None:
            kept |= _first_of_the_best({other: self._best(self.meta(other)) for other in past})
        return [other for other in past if other not in kept]

    def _settle(self) -> None:
        """Lets a save under way come to its end, whatever end that is; sends nothing to other processes."""
        if self._pending is not None:
            self._pending.exception()

    @contextlib.contextmanager
    def _mended(self) -> Iterator[None]:
        """Turns what the file system answers into one sentence; TensorStore reports it as text alone."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            number, text = getattr(error, "errno", None), str(error)
            known = {**MENDABLE, errno.EFBIG: "name a directory whose file system takes larger files"}
            code = next((code for code in known if code == number or os.strerror(code) in text), None)
            if code is None:
                raise
            raise UserError(f"cannot save in {self.directory}: {os.strerror(code)}; {known[code]}") from error


def locate(path: Path, option: str = "") -> tuple[Checkpoints, int]:
    """The checkpoint that a path means: a step's folder, the newest step of a checkpoints folder or run folder, or RUN/best.

    Args:
        path: what the user named.
        option: the option that named it, for the error.

    Raises:
        UserError: there is no complete checkpoint.
    """
    path = Path(path)
    if step_folders.is_complete(path):
        return Checkpoints(path.parent), int(path.name)
    if path.name == BEST and not path.exists():
        return _best(path.parent, option)
    for directory in (path, path / CHECKPOINTS):
        checkpoints = Checkpoints(directory)
        step = checkpoints.latest()
        if step is not None:
            return checkpoints, step
    found = "does not exist" if not path.exists() else "is a file" if path.is_file() else "holds no complete checkpoint"
    named = f"{option}={path}" if option else str(path)
    weights = (
        f", or weights of others: a file or folder with {', '.join(SUFFIXES)}"
        if option in ("init_from", "from")
        else ""
    )
    raise UserError(
        f"{named} {found}; name a run folder, its checkpoints folder, or the folder of one step in there{weights}"
    )


def _best(run: Path, option: str) -> tuple[Checkpoints, int]:
    """The checkpoint of a run with the highest score of those that were evaluated."""
    checkpoints, _ = locate(run, option)
    best = _first_of_the_best({step: checkpoints.meta(step).get("score") for step in checkpoints.steps()})
    if not best:
        raise UserError(f"no checkpoint of {run} was evaluated, so none is the best; name the folder of one step")
    return checkpoints, best.pop()


def _first_of_the_best(scores: Mapping[int, float | None]) -> set[int]:
    """The step with the highest score, the first of equally good ones, as a set; empty where none has a score."""
    judged = {step: score for step, score in scores.items() if score is not None}
    return {max(judged, key=lambda step: (judged[step], -step))} if judged else set()


def versions() -> dict[str, str]:
    """Python and the packages that shape a checkpoint; one that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in VERSIONED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _damage(folder: Path) -> manifest.Damage | None:
    """The first damaged file, the same on all processes; each reads its share."""
    listed = manifest.read(folder)
    if isinstance(listed, manifest.Damage):
        return listed
    files = sorted(listed.items())
    share = range(jax.process_index(), len(files), jax.process_count())
    bad = manifest.damages(folder, [files[index] for index in share])
    names = [name for name, _ in files]
    first = agreement.smallest(names.index(bad[0].file) if bad else len(files))
    if first == len(files):
        return None
    found = manifest.damages(folder, [files[first]])
    return found[0] if found else manifest.Damage(names[first], "is damaged")


@contextlib.contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if jax.process_index() == 0:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _settle_all() -> None:
    for checkpoints in _unfinished:
        checkpoints._settle()


# A process may end, by an error in its training for one, while a save is under way. The pools of threads that Orbax saves
# with close before threads are joined and before `atexit` functions run, and a save that meets a closed pool can wait
# forever. Only what is registered here runs earlier; CPython keeps the name for its own pools, which do the same.
threading._register_atexit(_settle_all)  # type: ignore[attr-defined]
