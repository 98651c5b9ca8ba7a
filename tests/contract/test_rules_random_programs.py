"""Random programs under random plans give what they give undivided; nothing has to be sensible about the plans."""

from __future__ import annotations

import jax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowaware_core import versions
from flowaware_core.program import Program
from tests.contract.programs import draft, mesh_of, random_choices, split, task
from tests.contract.proof import distance, doubles

# The steps of a program amplify the rounding of the ones before.
AMPLIFIED = 1e3
MESHES = [(8,), (2, 4), (4, 2), (2, 2, 2), (7,), (3, 2), (1,)]


def check(seed: int, length: int, training: bool, sizes: tuple[int, ...]) -> None:
    with doubles():
        made = draft(seed, length)
        whole, args = task(made, training)
        program, mesh = Program.of(whole), mesh_of(*sizes)
        step, _ = split(program, random_choices(program, mesh, seed), mesh)
        compiled = step.lower().compile(compiler_options=versions.compiler_options("cpu", optimise=False))
        expected = jax.jit(whole.step)(*args)
        results = compiled(*jax.device_put(args, step.in_shardings))
        pairs = zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True)
        worst = max((distance(got, want) for got, want in pairs), default=0.0)
    assert worst <= AMPLIFIED, f"differs by {worst:.2g} tolerances: {made.names}"


programs = {
    "seed": st.integers(0, 2**32),
    "length": st.integers(1, 8),
    "training": st.booleans(),
    "sizes": st.sampled_from(MESHES),
}


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(**programs)
def test_random_programs(seed: int, length: int, training: bool, sizes: tuple[int, ...]) -> None:
    check(seed, length, training, sizes)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(**programs)
def test_many_random_programs(seed: int, length: int, training: bool, sizes: tuple[int, ...]) -> None:
    check(seed, length, training, sizes)
