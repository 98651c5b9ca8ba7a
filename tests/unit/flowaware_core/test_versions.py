"""The same calls give the same answers on every jax the project runs on."""

import os
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowaware_core import versions


def evaluate(closed, *args):
    """The plainest interpreter that needs everything `versions` offers for jaxprs."""
    known = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    known |= dict(zip(closed.jaxpr.invars, args, strict=True))

    def read(atom):
        return atom.val if isinstance(atom, versions.Literal) else known[atom]

    for equation in closed.jaxpr.eqns:
        assert isinstance(equation, versions.JaxprEqn) and isinstance(equation.primitive, versions.Primitive)
        results = versions.bind(equation, [read(atom) for atom in equation.invars])
        for variable, result in zip(equation.outvars, results, strict=True):
            if not isinstance(variable, versions.DropVar):
                known[variable] = result
    return [read(atom) for atom in closed.jaxpr.outvars]


@jax.custom_vjp
def doubled_gradient(x):
    return jnp.sin(x)


doubled_gradient.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * g * jnp.cos(x),))


@jax.custom_jvp
def soft(x):
    return jnp.log1p(jnp.exp(x))


soft.defjvp(lambda primals, tangents: (soft(*primals), jax.nn.sigmoid(primals[0]) * tangents[0]))

CALLS = {
    "plain": lambda x: jnp.sin(x) @ x.T,
    "jit": jax.jit(lambda x: jnp.sin(x) + 1),
    "scan": lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(x.shape[1]), x),
    "while": lambda x: jax.lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * 2, s[1] + 1), (x, 0)),
    "cond": lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "remat": jax.checkpoint(lambda x: jnp.sin(jnp.cos(x))),
    "custom_vjp": doubled_gradient,
    "custom_vjp gradient": jax.grad(lambda x: doubled_gradient(x).sum()),
    "custom_jvp": soft,
    "sort": lambda x: jax.lax.sort_key_val(x.ravel(), jnp.arange(x.size)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_jaxpr_replayed_equation_by_equation_gives_the_same(name):
    x = jnp.linspace(0.1, 1.0, 6).reshape(2, 3)
    closed = jax.make_jaxpr(CALLS[name])(x)
    assert isinstance(closed, versions.ClosedJaxpr) and isinstance(closed.jaxpr, versions.Jaxpr)
    for got, want in zip(evaluate(closed, x), jax.tree.leaves(CALLS[name](x)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("name", ["custom_vjp", "custom_jvp"])
def test_replaying_keeps_custom_derivatives(name):
    x = jnp.linspace(0.1, 1.0, 6).reshape(2, 3)
    closed = jax.make_jaxpr(CALLS[name])(x)
    want = jax.grad(lambda x: CALLS[name](x).sum())(x)
    np.testing.assert_allclose(jax.grad(lambda x: evaluate(closed, x)[0].sum())(x), want, rtol=1e-6)


def test_a_mesh_leaves_its_axes_to_the_partitioner():
    mesh = versions.mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("node", "card"))
    assert mesh.axis_names == ("node", "card") and dict(mesh.shape) == {"node": 1, "card": 1}
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("node"))
    # An explicit axis would make this an assertion about the type of x instead of a request.
    jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, spec))(jnp.ones(4))


def test_shard_map_runs_per_shard():
    mesh = versions.mesh(np.array(jax.devices()[:1]), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    total = versions.shard_map(lambda x: jax.lax.psum(x.sum(), "d"), mesh, (spec,), jax.sharding.PartitionSpec())
    assert float(jax.jit(total)(jnp.ones(4))) == 4.0


def test_memory_and_cost_are_plain_numbers():
    step = jax.jit(lambda w, x: (w + 1, x @ w), donate_argnums=0)
    abstract = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((64, 64), (8, 64))]
    compiled = step.lower(*abstract).compile()
    memory = versions.memory(compiled)
    assert (memory.arguments, memory.aliases) == (64 * 64 * 4 + 8 * 64 * 4, 64 * 64 * 4)
    assert memory.outputs - memory.arguments < 64  # the newest counts the table of a tuple's addresses
    assert memory.total == memory.temporaries + memory.arguments + memory.outputs - memory.aliases
    assert memory.to_json()["total"] == memory.total
    assert versions.cost(compiled)["flops"] == pytest.approx(2 * 8 * 64 * 64 + 64 * 64)


def test_random_numbers_do_not_depend_on_sharding():
    code = (
        "from flowaware_core import versions; import jax; versions.use_partitionable_random_numbers();"
        "jaxpr = jax.make_jaxpr(lambda key: jax.random.normal(key, (4,)))(jax.random.key(0));"
        "assert jaxpr.eqns[-1].ctx.threefry_partitionable"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})


def test_importing_starts_no_backend_and_warns_of_nothing():
    code = "import flowaware_core.versions; from jax._src import xla_bridge; assert not xla_bridge._backends"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        test_shard_map_runs_per_shard()
