"""How fast the text and image networks are beside torch, transformers and timm, in one run on this machine's processor.

    python -m tests.benchmarks.text_vision --python PEER [--cases bert_base t5_small ...] [--rounds N] [--json FILE]

PEER is the Python of an environment with torch, transformers and timm (default: ZOO_PARITY_PYTHON). Both sides have the same
weights and inputs, and take turns, so that what disturbs the machine disturbs both; the figures are medians. bert_base, t5_small
and resnet50 are one forward and backward pass in float32 (a masked-language loss over 8 x 128 tokens, 8 x 128/128 tokens, 8 images
of 224^2); greedy and beam4 write 64 tokens for each of 8 sources with t5_small. Losses, gradients' norms and texts must agree.
Ends with exit code 1 where a ratio is above what is allowed, or the two sides differ.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo.models import weight_files
from zoo.models.bert import convert as bert_names
from zoo.models.bert.model import Bert
from zoo.models.resnet import convert as resnet_names
from zoo.models.resnet.config import ResNetConfig
from zoo.models.resnet.model import ResNet
from zoo.models.t5 import convert as t5_names
from zoo.models.t5.generate import Generation, generate
from zoo.models.t5.model import T5, shifted
from zoo.runtime import memory
from zoo.training.updates import cross_entropy

SCRIPT = Path(__file__).with_name("text_vision_torch.py")
# Our time over theirs, at most.
ALLOWED = {"bert_base": 1.1, "t5_small": 1.0, "resnet50": 1.5, "greedy": 1.0, "beam4": 1.0}
NEW_TOKENS = 64

Run = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Given:
    """What the other side wrote down: weights by its names, inputs, and its config.json."""

    arrays: dict[str, np.ndarray]
    inputs: dict[str, np.ndarray]
    config: dict[str, Any]


def trained(loss_of: Callable[..., jax.Array], params: Any, *inputs: Any) -> Run:
    """Forward and backward."""
    step = jax.jit(jax.value_and_grad(loss_of))
    return lambda: step(params, *inputs)


def plain(found: Any) -> dict[str, Any]:
    """What a run found as plain numbers: texts, or the loss and the norm of the whole gradient."""
    if not isinstance(found, tuple):
        return {"ids": np.asarray(found).tolist()}
    loss, grads = found
    squares = sum(float(np.sum(np.square(leaf, dtype=np.float64))) for leaf in jax.tree.leaves(jax.device_get(grads)))
    return {"loss": float(loss), "gradient": squares**0.5}


def bert_base(given: Given) -> Run:
    config = bert_names.config_from(
        given.config, head="masked_words", dropout=0.0, attention_dropout=0.0, repeat="unrolled", products="flat"
    )
    params = jax.device_put(bert_names.from_hugging_face(given.arrays, config).params)
    ids, words = (given.inputs[name].astype(np.int32) for name in ("ids", "words"))

    def loss_of(params: Any, ids: jax.Array, words: jax.Array) -> jax.Array:
        found = Bert(config, train=True).apply({"params": params}, ids, jnp.zeros_like(ids), jnp.ones_like(ids))
        return jnp.mean(cross_entropy(found["words"], words))

    return trained(loss_of, params, ids, words)


def t5_small(given: Given) -> Run:
    config = t5_names.config_from(given.config, dropout=0.0, repeat="unrolled", products="flat")
    params = jax.device_put(t5_names.from_hugging_face(given.arrays, config).params)
    source, target = (given.inputs[name].astype(np.int32) for name in ("source", "target"))

    def loss_of(params: Any, source: jax.Array, target: jax.Array) -> jax.Array:
        logits = T5(config, train=True).apply(
            {"params": params}, source, jnp.ones_like(source), shifted(target, config.pad_id)
        )
        return jnp.mean(cross_entropy(logits, target))

    return trained(loss_of, params, source, target)


def resnet50(given: Given) -> Run:
    config = ResNetConfig((3, 4, 6, 3), convolution="products")
    variables = jax.device_put(resnet_names.from_torch(given.arrays, config).params)
    image = np.ascontiguousarray(given.inputs["image"].transpose(0, 2, 3, 1))
    label = given.inputs["label"].astype(np.int32)

    def loss_of(params: Any, stats: Any, image: jax.Array, label: jax.Array) -> jax.Array:
        variables = {"params": params, "batch_stats": stats}
        logits: Any = ResNet(config).apply(variables, image, train=True, mutable=["batch_stats"])[0]
        return jnp.mean(cross_entropy(logits, label))

    return trained(loss_of, variables["params"], variables["batch_stats"], image, label)


def generation(given: Given, beams: int) -> Run:
    config = t5_names.config_from(given.config)
    params = jax.device_put(t5_names.from_hugging_face(given.arrays, config).params)
    source = given.inputs["source"].astype(np.int32)
    how = Generation(max_tokens=NEW_TOKENS, beams=beams)
    write = jax.jit(
        lambda params, source: generate(config, how, params, source, jnp.ones_like(source), jax.random.key(0))
    )
    return lambda: write(params, source)


CASES: dict[str, Callable[[Given], Run]] = {
    "bert_base": bert_base,
    "t5_small": t5_small,
    "resnet50": resnet50,
    "greedy": lambda given: generation(given, 1),
    "beam4": lambda given: generation(given, 4),
}


class Peer:
    """The other side: a process that does its case once whenever it is asked."""

    def __init__(self, python: str, case: str, folder: Path, threads: int) -> None:
        words = [python, str(SCRIPT), case, str(folder), str(threads)]
        environ = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        self.facts = self._answer()
        file = folder / "config.json"
        with np.load(folder / "inputs.npz") as inputs:
            self.given = Given(
                weight_files.read(folder / "model.safetensors"),
                dict(inputs.items()),
                json.loads(file.read_text()) if file.exists() else {},
            )

    def __call__(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the other side ended with exit code {self._process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def agree(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether both sides found the same: losses within 1e-4 of their size, norms of gradients within 1e-3, texts exactly."""
    if "ids" in ours:
        width = len(theirs["ids"][0])  # theirs ends with the longest text
        return all(
            one[:width] == two and not any(one[width:]) for one, two in zip(ours["ids"], theirs["ids"], strict=True)
        )
    near = {"loss": 1e-4, "gradient": 1e-3}  # gradients of torch in float32 are that far from its own in float64
    return all(abs(ours[name] - theirs[name]) <= share * abs(theirs[name]) for name, share in near.items())


def measure(case: str, python: str, threads: int, rounds: int) -> dict[str, Any]:
    """Seconds of each side, their ratio, and whether they agree."""
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(python, case, Path(folder), threads)
        run = CASES[case](peer.given)
        ours, theirs = plain(run()), peer()  # compiles and warms up
        same = agree(ours, theirs)
        spent: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(rounds):
            begin = time.perf_counter()
            jax.block_until_ready(run())
            spent["ours"].append(time.perf_counter() - begin)
            spent["theirs"].append(peer()["seconds"])
        peer.end()
    found: dict[str, Any] = {name: statistics.median(values) for name, values in spent.items()}
    found["ratio"] = found["ours"] / found["theirs"]
    if "ids" in ours:
        # Texts of both are equal, and so is the number of their tokens.
        found["tokens_per_s"] = sum(map(len, theirs["ids"])) / found["ours"]
    figures = {name: [ours[name], theirs[name]] for name in ("loss", "gradient") if name in ours}
    return {**found, "allowed": ALLOWED[case], "agree": same, "rounds": rounds, "spent": spent, **figures}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=os.environ.get("ZOO_PARITY_PYTHON"))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    if not options.python:
        parser.error("--python=PEER is missing, the Python of an environment with torch, transformers and timm")
    memory.keep_freed()  # as zoo.train does on a processor
    found = {}
    for case in options.cases:
        one = found[case] = measure(case, options.python, options.threads, options.rounds)
        tokens = f"   {one['tokens_per_s']:.0f} tokens/s" if "tokens_per_s" in one else ""
        print(
            f"{case:<10} ours {one['ours']:7.3f} s   theirs {one['theirs']:7.3f} s   ratio {one['ratio']:.3f} "
            f"(allowed {one['allowed']}){tokens}   {'equal' if one['agree'] else 'NOT EQUAL'}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return int(any(one["ratio"] > one["allowed"] or not one["agree"] for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
