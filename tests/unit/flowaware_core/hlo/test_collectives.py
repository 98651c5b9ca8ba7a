"""Collectives of programs compiled for 8 virtual devices and of other texts, against bytes worked out by hand."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import with_sharding_constraint as constrain
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from flowaware_core import hlo, versions

F32 = 4
ROWS, IN, MID, OUT = 16, 64, 128, 32  # batch, and the widths of a net with two layers


class Mesh:
    """Shardings on one mesh, by the axes of each dimension."""

    def __init__(self, *sizes):
        names = "abc"[: len(sizes)] if len(sizes) > 1 else "d"
        self.mesh = versions.mesh(np.array(jax.devices()).reshape(sizes), tuple(names))

    def __call__(self, *axes):
        return NamedSharding(self.mesh, P(*axes))


def array(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype)


def compiled(function, ins, outs, *args):
    return jax.jit(function, in_shardings=ins, out_shardings=outs).lower(*args).compile().as_text()


def moved(text):
    """(kind, bytes, group size, count) of every collective, how often each occurs."""
    found = hlo.collectives(text, 8)
    return collections.Counter((c.kind, c.bytes, c.group_size, c.count) for c in found)


def two_layers(batch, hidden, weights, whole, dtype="float32", before=()):
    """A training step of a net with two layers, every value constrained.

    Args:
        batch, hidden: shardings of activations. weights: how the two weights are kept. whole: how they are used.
        before: shardings a gradient passes through before it is that of its weight.
    """
    replicated = NamedSharding(batch.mesh, P())

    def gradient(value, sharding):
        for step in (*before, sharding):
            value = constrain(value, step)
        return value

    def step(w1, w2, x, y):
        v1, v2 = constrain(w1, whole[0]), constrain(w2, whole[1])
        h = constrain(jnp.tanh(constrain(x @ v1, hidden)), hidden)
        error = constrain(constrain(h @ v2, batch) - y, batch)
        loss = constrain((error**2).sum(), replicated)
        g = constrain(2 * error, batch)
        g2 = gradient(h.T @ g, weights[1])
        g = constrain(constrain(g @ v2.T, hidden) * (1 - h * h), hidden)
        g1 = gradient(x.T @ g, weights[0])
        return constrain(w1 - g1, weights[0]), constrain(w2 - g2, weights[1]), loss

    args = (
        array(IN, MID, dtype=dtype),
        array(MID, OUT, dtype=dtype),
        array(ROWS, IN, dtype=dtype),
        array(ROWS, OUT, dtype=dtype),
    )
    return compiled(step, (*weights, batch, batch), (*weights, replicated), *args)


def test_data_parallelism_reduces_every_gradient_and_the_loss():
    m = Mesh(8)
    text = two_layers(m("d"), m("d"), (m(), m()), (m(), m()))
    reduced = [("all-reduce", size, 8, 1) for size in (IN * MID * F32, MID * OUT * F32, F32)]
    assert moved(text) == collections.Counter(reduced)
    assert {c.dtype for c in hlo.collectives(text, 8)} == {"f32"}
    names = sorted(c.op_name.rsplit("/", 1)[-1] for c in hlo.collectives(text, 8))
    assert names == ["dot_general", "dot_general", "reduce_sum"]  # also where the compiler joins the three


@pytest.mark.parametrize("dimension", [0, 1])
def test_fsdp_gathers_weights_and_scatters_gradients(dimension):
    m = Mesh(8)
    kept = m("d") if dimension == 0 else m(None, "d")
    text = two_layers(m("d"), m("d"), (kept, kept), (m(), m()))
    assert moved(text) == {
        ("all-gather", IN * MID * F32 // 8, 8, 1): 1,
        ("all-gather", MID * OUT * F32 // 8, 8, 1): 1,
        ("reduce-scatter", IN * MID * F32, 8, 1): 1,
        ("reduce-scatter", MID * OUT * F32, 8, 1): 1,
        ("all-reduce", F32, 8, 1): 1,
    }
    assert {c.rewritten for c in hlo.collectives(text, 8) if c.kind == "reduce-scatter"} == {True}


def test_fsdp_in_bfloat16_counts_what_other_backends_move():
    m = Mesh(8)
    text = two_layers(m("d"), m("d"), (m("d"), m("d")), (m(), m()), dtype="bfloat16")
    assert moved(text) == {
        ("all-gather", IN * MID * 2 // 8, 8, 1): 1,
        ("all-gather", MID * OUT * 2 // 8, 8, 1): 1,
        ("reduce-scatter", IN * MID * 2, 8, 1): 1,
        ("reduce-scatter", MID * OUT * 2, 8, 1): 1,
        ("all-reduce", F32, 8, 1): 1,  # jax sums bfloat16 in float32
    }
    for c in hlo.collectives(text, 8):
        assert (c.promoted, c.dtype) == ((False, "f32") if c.kind == "all-reduce" else (True, "bf16"))


def test_fsdp_with_tensor_parallelism():
    m = Mesh(2, 4)
    text = two_layers(m("a"), m("a", "b"), (m("a", "b"), m("b", "a")), (m(None, "b"), m("b", None)))
    assert moved(text) == {
        ("all-gather", IN * MID * F32 // 8, 2, 1): 1,
        ("all-gather", MID * OUT * F32 // 8, 2, 1): 1,
        ("reduce-scatter", IN * MID * F32 // 4, 2, 1): 1,
        ("reduce-scatter", MID * OUT * F32 // 4, 2, 1): 1,
        ("all-reduce", ROWS // 2 * OUT * F32, 4, 1): 1,
        ("all-reduce", F32, 2, 1): 1,
    }
    groups = {c.group_size: c.groups for c in hlo.collectives(text, 8)}
    assert groups == {2: ((0, 4), (1, 5), (2, 6), (3, 7)), 4: ((0, 1, 2, 3), (4, 5, 6, 7))}


def test_weights_on_one_axis_batch_on_two():
    m = Mesh(2, 4)
    text = two_layers(m(("a", "b")), m(("a", "b")), (m("b"), m("b")), (m(), m()))
    assert moved(text) == {
        ("all-gather", IN * MID * F32 // 4, 4, 1): 1,
        ("all-gather", MID * OUT * F32 // 4, 4, 1): 1,
        ("reduce-scatter", IN * MID * F32, 4, 1): 1,
        ("reduce-scatter", MID * OUT * F32, 4, 1): 1,
        ("all-reduce", IN * MID * F32 // 4, 2, 1): 1,
        ("all-reduce", MID * OUT * F32 // 4, 2, 1): 1,
        ("all-reduce", F32, 8, 1): 1,
    }


def test_two_dimensions_scattered_one_after_the_other():
    m = Mesh(2, 4)
    kept = m("a", "b")
    text = two_layers(m(("a", "b")), m(("a", "b")), (kept, kept), (m(), m()), before=(m(None, "b"),))
    scattered = {key: n for key, n in moved(text).items() if key[0] == "reduce-scatter"}
    assert scattered == {
        ("reduce-scatter", IN * MID * F32, 4, 1): 1,
        ("reduce-scatter", MID * OUT * F32, 4, 1): 1,
        ("reduce-scatter", IN * MID * F32 // 4, 2, 1): 1,
        ("reduce-scatter", MID * OUT * F32 // 4, 2, 1): 1,
    }


def test_a_slice_in_another_order_than_the_reduction_is_no_reduce_scatter():
    """The j-th device of a group must keep the j-th piece, or no compiler makes a reduce-scatter of it."""
    offsets = {"right": "0, 1, 2, 3, 0, 1, 2, 3", "wrong": "1, 0, 2, 3, 0, 1, 2, 3"}
    for order, table in offsets.items():
        text = SCATTER.format(table=table, size=16)
        kinds = [c.kind for c in hlo.collectives(text, 8)]
        assert kinds == ["reduce-scatter" if order == "right" else "all-reduce"]
    assert [c.kind for c in hlo.collectives(SCATTER.format(table="...", size=16), 8)] == ["reduce-scatter"]
    assert [c.kind for c in hlo.collectives(SCATTER.format(table=offsets["right"], size=8), 8)] == ["all-reduce"]


SCATTER = """HloModule scatter, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

%cut (whole: f32[64,32], places: u32[8], partition: u32[]) -> f32[{size},32] {{
  %whole = f32[64,32]{{1,0}} parameter(0)
  %places = u32[8]{{0}} parameter(1)
  %partition = u32[] parameter(2)
  %entry = u32[1]{{0}} dynamic-slice(%places, %partition), dynamic_slice_sizes={{1}}
  %sixteen = u32[1]{{0}} constant({{16}})
  %rows = u32[1]{{0}} multiply(%entry, %sixteen)
  %row = u32[] bitcast(%rows)
  %zero = u32[] constant(0)
  ROOT %piece = f32[{size},32]{{1,0}} dynamic-slice(%whole, %row, %zero), dynamic_slice_sizes={{{size},32}}
}}

ENTRY %main (x: f32[64,32]) -> f32[{size},32] {{
  %x = f32[64,32]{{1,0}} parameter(0)
  %reduced = f32[64,32]{{1,0}} all-reduce(%x), channel_id=1, replica_groups=[2,4]<=[8], to_apply=%add
  %table = u32[8]{{0}} constant({{{table}}})
  %id = u32[] partition-id()
  ROOT %out = f32[{size},32]{{1,0}} fusion(%reduced, %table, %id), kind=kLoop, calls=%cut
}}
"""


def test_a_sum_that_is_also_used_whole_is_no_reduce_scatter():
    m = Mesh(8)

    def step(x):
        product = constrain(x.T @ x, m())
        return constrain(product, m("d")), constrain(jnp.tanh(product), m())

    kinds = {c.kind for c in hlo.collectives(compiled(step, m("d"), (m("d"), m()), array(ROWS, IN)), 8)}
    assert kinds == {"all-reduce"}


def test_a_scattered_sum_used_twice_is_one_reduce_scatter():
    m = Mesh(8)

    def step(w, x):
        g = constrain(x.T @ x, m("d"))
        return constrain(w - g / (1 + jnp.sqrt((g * g).sum())), m("d"))

    text = compiled(step, (m("d"), m("d")), m("d"), array(IN, IN), array(ROWS, IN))
    assert moved(text) == {("reduce-scatter", IN * IN * F32, 8, 1): 1, ("all-reduce", F32, 8, 1): 1}


def test_loops_multiply():
    m = Mesh(8)

    def step(ws, vs, x):
        def body(h, wv):
            a = constrain(jnp.tanh(h @ wv[0]), m(None, "d"))
            return constrain(h + a @ wv[1], m()), None

        return jax.lax.scan(body, x, (ws, vs))[0]

    args = array(5, IN, MID), array(5, MID, IN), array(ROWS, IN)
    text = compiled(step, (m(None, None, "d"), m(None, "d"), m()), m(), *args)
    assert moved(text) == {("all-reduce", ROWS * IN * F32, 8, 5): 1}


def test_reduce_scatters_inside_a_loop():
    """The compiler moves the offsets out of the loop and hands them in through its state."""
    m = Mesh(2, 4)

    def step(ws, x):
        def body(h, w):
            g = constrain(h.T @ h, m("b", "a"))
            return constrain(jnp.tanh(h @ constrain(w, m("b"))), m("a", "b")), constrain(w - g, m("b", "a"))

        return jax.lax.scan(body, x, ws)[1]

    text = compiled(step, (m(None, "b", "a"), m("a", "b")), m(None, "b", "a"), array(5, IN, IN), array(ROWS, IN))
    scattered = [c for c in hlo.collectives(text, 8) if c.kind == "reduce-scatter"]
    assert [(c.bytes, c.group_size, c.count) for c in scattered if c.group_size == 2] == [(IN // 4 * IN * F32, 2, 5)]


def test_an_unknown_number_of_trips_is_none():
    m = Mesh(8)

    def step(n, x):
        return jax.lax.fori_loop(0, n, lambda i, x: constrain(jnp.sin(x) + x.sum(0), m("d")), x)

    text = compiled(step, (m(), m("d")), m("d"), array(dtype="int32"), array(IN, MID))
    assert moved(text) == {("all-reduce", MID * F32, 8, None): 1}


def test_every_branch_counts():
    m = Mesh(8)

    def step(p, x):
        branches = [lambda x, f=f: constrain(f(x).sum(0), m()) for f in (jnp.sin, jnp.cos)]
        return jax.lax.cond(p > 0, *branches, x)

    text = compiled(step, (m(), m("d")), m(), array(), array(IN, MID))
    assert moved(text) == {("all-reduce", MID * F32, 8, 1): 2}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_resharding_and_halos(dtype):
    size = jnp.dtype(dtype).itemsize
    m, n = Mesh(8), Mesh(2, 4)
    x = array(IN, MID, dtype=dtype)
    turned = compiled(lambda x: constrain(jnp.sin(x), m("d")) + 1, m("d"), m(None, "d"), x)
    assert moved(turned) == {("all-to-all", IN * MID * size // 8, 8, 1): 1}
    turned = compiled(lambda x: constrain(jnp.sin(x), n("b")) + 1, n("b"), n(None, "b"), x)
    assert moved(turned) == {("all-to-all", IN * MID * size // 4, 4, 1): 1}
    gathered = compiled(lambda x: constrain(constrain(jnp.sin(x), n("a", "b")), n()), n("a", "b"), n(), x)
    first, second = IN * MID * size // 8, IN * MID * size // 2
    assert moved(gathered) == {("all-gather", first, 4, 1): 1, ("all-gather", second, 2, 1): 1}

    def convolve(x, k):
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    image, kernel = array(2, 32, 32, 4, dtype=dtype), array(3, 3, 4, 8, dtype=dtype)
    text = compiled(convolve, (m(None, "d"), m()), m(None, "d"), image, kernel)
    assert moved(text) == {("collective-permute", 2 * 1 * 32 * 4 * size, 2, 1): 2}
    assert ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)) in {c.groups for c in hlo.collectives(text, 8)}


def test_only_what_the_compiler_widened_is_halved():
    m = Mesh(8)
    asked = compiled(
        lambda w: constrain(constrain(w.astype("float32"), m("d")), m()) * 2,
        m("d"),
        m(),
        array(IN, MID, dtype="bfloat16"),
    )
    assert moved(asked) == {("all-gather", IN * MID * F32 // 8, 8, 1): 1}

    def mixed(p, x, y):
        def loss(p):
            w = p.astype("bfloat16")
            return (jnp.tanh(x @ w) - y).astype("float32").var()

        value, gradient = jax.value_and_grad(loss)(p)
        return p - gradient, value

    args = array(IN, OUT), array(ROWS, IN, dtype="bfloat16"), array(ROWS, OUT, dtype="bfloat16")
    sizes = collections.Counter(
        (c.bytes, c.dtype) for c in hlo.collectives(compiled(mixed, (m(), m("d"), m("d")), (m(), m()), *args), 8)
    )
    assert sizes.pop((IN * OUT * 2, "bf16")) == 1  # the gradient, though it may share an instruction with what follows
    assert set(sizes) == {(F32, "f32")}


def test_reductions_over_two_axes():
    m = Mesh(2, 4)
    one = compiled(lambda x: (x * x).sum(0), m(("a", "b")), m(), array(IN, MID))
    assert moved(one) == {("all-reduce", MID * F32, 8, 1): 1}
    chained = compiled(lambda x: (x * x).sum((0, 1)), m("a", "b"), m(), array(IN, OUT, MID))
    assert moved(chained) == {("all-reduce", MID * F32, 4, 1): 1, ("all-reduce", MID * F32, 2, 1): 1}


def test_batch_norm_reduces_statistics_and_their_gradients():
    m = Mesh(8)

    def loss(p, x, y):
        kernel, scale, offset, head = p
        h = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        mean = h.mean((0, 1, 2))
        h = (h - mean) * jax.lax.rsqrt(((h - mean) ** 2).mean((0, 1, 2)) + 1e-5) * scale + offset
        logits = jax.nn.relu(h).mean((1, 2)) @ head
        return -(jax.nn.log_softmax(logits) * y).sum(-1).mean()

    def step(p, x, y):
        value, gradient = jax.value_and_grad(loss)(p, x, y)
        return jax.tree.map(lambda a, b: a - b, p, gradient), value

    params = array(3, 3, 4, 16), array(16), array(16), array(16, 10)
    text = compiled(step, ((m(),) * 4, m("d"), m("d")), ((m(),) * 4, m()), params, array(16, 8, 8, 4), array(16, 10))
    total = sum(c.bytes for c in hlo.collectives(text, 8))
    # Mean and variance, three or four sums through them in the gradient, scale and offset; and the other parameters.
    statistics = [c.bytes for c in hlo.collectives(text, 8)].count(16 * F32)
    assert {c.kind for c in hlo.collectives(text, 8)} == {"all-reduce"}
    assert total == statistics * 16 * F32 + (3 * 3 * 4 * 16 + 16 * 10 + 1) * F32 and 6 <= statistics <= 7


ASYNCHRONOUS = """HloModule other, num_partitions=8

%add (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %sum = bf16[] add(bf16[] %a, bf16[] %b)
}

%wrapped (p: bf16[64,8]) -> bf16[8,8] {
  %p = bf16[64,8] parameter(0)
  ROOT %scatter = bf16[8,8] reduce-scatter(bf16[64,8] %p), replica_groups=[1,8]<=[8], dimensions={0}, to_apply=%add
}

ENTRY %main (x: bf16[8,8], y: f32[4]) -> (bf16[64,8], f32[4]) {
  %x = bf16[8,8] parameter(0)
  %y = f32[4] parameter(1)
  %g = (bf16[8,8], bf16[64,8]) all-gather-start(bf16[8,8] %x), replica_groups=[1,8]<=[8], dimensions={0}
  %gd = bf16[64,8] all-gather-done((bf16[8,8], bf16[64,8]) %g), metadata={op_name="jit(f)/eq7/gather"}
  %r = (bf16[64,8], f32[4]) all-reduce-start(%gd, %y), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  %rd = (bf16[64,8], f32[4]) all-reduce-done((bf16[64,8], f32[4]) %r)
  %r0 = bf16[64,8] get-tuple-element((bf16[64,8], f32[4]) %rd), index=0, metadata={op_name="jit(f)/eq8/psum"}
  %r1 = f32[4] get-tuple-element((bf16[64,8], f32[4]) %rd), index=1
  %s = ((bf16[64,8]), bf16[8,8]) async-start(bf16[64,8] %r0), calls=%wrapped
  %sd = bf16[8,8] async-done(((bf16[64,8]), bf16[8,8]) %s)
  %p = (bf16[8,8], bf16[8,8], u32[], u32[]) collective-permute-start(%sd), source_target_pairs={{0,1},{1,0}}
  %pd = bf16[8,8] collective-permute-done((bf16[8,8], bf16[8,8], u32[], u32[]) %p)
  %none = bf16[8,8] all-reduce(bf16[8,8] %pd), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=%add
  %all = bf16[8,8] all-to-all(bf16[8,8] %none), replica_groups={}, dimensions={0}
  ROOT %out = (bf16[64,8], f32[4]) tuple(bf16[64,8] %gd, f32[4] %r1)
}
"""


def test_asynchronous_forms_and_groups_of_one():
    found = hlo.collectives(ASYNCHRONOUS, 8)
    assert collections.Counter((c.kind, c.bytes, c.group_size) for c in found) == {
        ("all-gather", 8 * 8 * 2, 8): 1,
        ("all-reduce", 64 * 8 * 2, 4): 1,
        ("all-reduce", 4 * 4, 4): 1,
        ("reduce-scatter", 64 * 8 * 2, 8): 1,
        ("collective-permute", 8 * 8 * 2, 2): 1,
        ("all-to-all", 8 * 8 * 2, 8): 1,
    }
    assert {c.count for c in found} == {1} and not any(c.promoted or c.rewritten for c in found)
    assert [c.op_name for c in found if c.kind == "all-gather"] == ["jit(f)/eq7/gather"]
    assert [c.op_name for c in found if c.kind == "all-reduce"] == ["jit(f)/eq8/psum", ""]


def test_shard_map_writes_the_collectives_it_says():
    m = Mesh(2, 4)

    def body(x):
        x = jax.lax.psum_scatter(x, "a", scatter_dimension=0, tiled=True)
        x = jax.lax.all_to_all(x, "b", 1, 0, tiled=True)
        return jax.lax.ppermute(x, "b", [(i, (i + 1) % 4) for i in range(4)])

    function = versions.shard_map(body, m.mesh, (P(None, None),), P(("a", "b"), None))
    text = jax.jit(function).lower(array(IN, MID)).compile().as_text()
    half = IN * MID * F32 // 2
    assert moved(text) == {
        ("reduce-scatter", IN * MID * F32, 2, 1): 1,
        ("all-to-all", half, 4, 1): 1,
        ("collective-permute", half, 2, 1): 1,
    }


def test_a_text_that_is_no_module_is_refused():
    with pytest.raises(ValueError, match="as_text"):
        hlo.collectives("module @jit_f { func.func public @main() }", 8)
