"""Every rule, proven: an operator cut in every way its rule allows gives what the whole operator gives and moves what is predicted.

The fast tests prove one operator of every kind. The slow ones prove every operator of every case in every way, and hold the list of
cases against the table of rules.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from flowaware_core import versions
from flowaware_core.graph.capture import capture
from flowaware_core.graph.model import Operator
from flowaware_core.graph.rules import ELEMENTWISE, RULES
from flowaware_core.task import Task
from tests.contract.cases.values import Case
from tests.contract.proof import Instance, Pair, cuts, doubles, instances, refuted

MESH = (2, 4)
TABLES = ("elementwise", "shapes", "indexing", "matrix", "control", "library", "uneven")
# So many operators share one program.
CHUNK = 100

# One case or more for every rule that is not elementwise.
FAST = {
    "elementwise": ["numpy.sin", "numpy.where", "lax.clamp by scalars", "lax.bitcast to narrow", "special.gammainc"],
    "shapes": """broadcast, transpose, reshape merges, reshape splits, squeeze, flip, tile, iota, pad, slice, concatenate, stack,
        lax.split, unstack, dynamic_slice, dynamic_update_slice, sum, max and min, prod, any and all, argmax, reduce of several,
        cumsum, cumlogsumexp, sort, top_k, approx_max_k""".replace("\n", " ").split(", "),
    "indexing": ["embedding", "embedding gradient", "take_along_axis gradient", "set", "max at", "one key per example"],
    "matrix": """dot with two batch dimensions, ragged_dot, conv 2d gradient, conv strided gradient, conv batch groups,
        pool max overlapping gradient, pool mean gradient, fft, cholesky, triangular_solve from the right""".replace(
        "\n", " "
    ).split(", "),
    "control": ["remat", "optimization_barrier"],
    "uneven": ["max of negatives", "dot gradient", "softmax", "convolution gradient", "embedding gradient", "sort"],
}


def table(name: str) -> dict[str, Case]:
    return importlib.import_module(f"tests.contract.cases.{name}").CASES


def found(name: str, case: str, seen: set[str]) -> list[Instance]:
    """The operators of a case that were not seen yet; none where a library does not work on this version of jax."""
    function, args = table(name)[case]
    try:
        return instances(function, args, seen)
    except AttributeError as error:
        if name == "library" and versions.VERSION < (0, 5):
            pytest.skip(f"the library does not work on this version of jax: {error}")
        raise


def chunks(pairs: list[Pair]) -> Iterator[list[Pair]]:
    for start in range(0, len(pairs), CHUNK):
        yield pairs[start : start + CHUNK]


def shape(operator: Operator) -> list[tuple[str, str, bool]]:
    """What the factors of an operator that may be cut are like."""
    return [(f.kind, f.combine, bool(f.borders)) for f in operator.rule.factors if f.shardable]


@pytest.mark.parametrize("name", FAST)
def test_one_operator_of_every_kind(name: str) -> None:
    seen: set[str] = set()
    kinds: set[str] = set()
    pairs: list[Pair] = []
    with doubles():
        for case in FAST[name]:
            for instance in found(name, case.strip(), seen):
                if name == "uneven" and not any(instance.graph.tensors[t].shape for t in instance.operator.inputs):
                    continue  # made from nothing: the compiler makes the whole anew instead of gathering its parts
                kind = repr((instance.operator.primitive, shape(instance.operator)))
                if kind not in kinds:
                    kinds.add(kind)
                    pairs += [(instance, cut) for cut in cuts(instance, MESH) if cut[0] < 0 or cut[0] != cut[1]]
        wrong = [line for chunk in chunks(pairs) for line in refuted(chunk, MESH)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", TABLES)
def test_every_operator_in_every_way(name: str) -> None:
    seen: set[str] = set()
    pairs: list[Pair] = []
    with doubles():
        for case in table(name):
            for instance in found(name, case, seen):
                pairs += [(instance, cut) for cut in cuts(instance, MESH, thorough=True)]
        wrong = [line for chunk in chunks(pairs) for line in refuted(chunk, MESH)]
    assert not wrong, "\n".join(wrong)


# Only accelerators or foreign hosts have these, or no public function makes them.
NOT_HERE = set(
    """cholesky_update copy_p debug_callback debug_print empty empty2 eq_to expand_dims geqp3 geqrf hessenberg igamma_grad_a
    io_callback le_to lt_to lu_pivots_to_permutation mulhi ormqr pvary random_clone random_gamma_grad reduce_precision schur
    select_and_gather_add select_and_scatter symmetric_product symmetric_update tridiagonal tridiagonal_solve""".split()
)


@pytest.mark.slow
def test_every_primitive_has_a_rule_and_every_rule_a_case() -> None:
    met: set[str] = set()
    unknown: dict[str, str] = {}
    with doubles():
        for name in TABLES:
            for case, (function, args) in table(name).items():
                try:
                    graph = capture(Task(function, args))
                except AttributeError:
                    assert name == "library" and versions.VERSION < (0, 5), case
                    continue
                for operator, _ in graph.walk():
                    met.add(operator.primitive)
                    if not operator.rule.known:
                        unknown[operator.primitive] = case
    assert not unknown
    names = {name.replace("_", "-") if name.startswith("scatter") else name for name in RULES}
    print(sorted(names - met - NOT_HERE - ELEMENTWISE), sorted(met & NOT_HERE))
