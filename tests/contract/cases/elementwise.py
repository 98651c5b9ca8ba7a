"""Functions of one element each, as numpy, lax and networks have them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.special as special
from jax import lax

from tests.contract.cases.values import Case, flags, real, unit, waves, whole

UNARY = """abs arccos arcsin arctan cbrt ceil conj cos cosh degrees exp exp2 expm1 fabs floor isfinite isinf isnan log log10
    log1p log2 negative positive radians reciprocal rint round sign signbit sin sinc sinh sqrt square tan tanh trunc""".split()
BINARY = """add arctan2 copysign divide equal float_power floor_divide fmod greater greater_equal heaviside hypot less less_equal
    logaddexp maximum minimum mod multiply nextafter not_equal power remainder subtract true_divide""".split()
WHOLE = "bitwise_and bitwise_or bitwise_xor gcd lcm left_shift right_shift floor_divide mod power".split()
NETWORK = """celu elu gelu glu hard_sigmoid hard_silu hard_tanh leaky_relu log_sigmoid relu relu6 selu sigmoid silu soft_sign
    softplus squareplus mish sparse_plus""".split()
SPECIAL = "bessel_jn digamma entr erf erfc erfinv expit gammaln i0 i0e i1 i1e log_ndtr logit ndtr ndtri spence".split()

CASES: dict[str, Case] = {
    f"numpy.{name}": (getattr(jnp, name), (unit(16, 24),)) for name in UNARY if hasattr(jnp, name)
}
CASES |= {
    f"numpy.{name}": (getattr(jnp, name), (unit(16, 24), unit(16, 24, seed=1))) for name in BINARY if hasattr(jnp, name)
}
CASES |= {
    f"numpy.{name} of integers": (getattr(jnp, name), (whole(16, 24), whole(16, 24, high=5, seed=1) + 1))
    for name in WHOLE
}
CASES |= {f"nn.{name}": (getattr(jax.nn, name), (real(16, 24),)) for name in NETWORK if hasattr(jax.nn, name)}
CASES |= {
    f"nn.{name} gradient": (jax.vmap(jax.vmap(jax.grad(getattr(jax.nn, name)))), (real(16, 24),))
    for name in NETWORK
    if hasattr(jax.nn, name)
}
CASES |= {
    f"special.{name}": (getattr(special, name), (unit(16, 24),))
    for name in SPECIAL
    if hasattr(special, name) and name != "bessel_jn"
}
CASES |= {
    "special.gammainc": (special.gammainc, (unit(16, 24), unit(16, 24, seed=1))),
    "special.gammaincc": (special.gammaincc, (unit(16, 24), unit(16, 24, seed=1))),
    "special.betainc": (special.betainc, (unit(16, 24), unit(16, 24, seed=1), unit(16, 24, seed=2))),
    "special.polygamma": (special.polygamma, (1 + whole(16, 24), unit(16, 24))),
    "special.zeta": (special.zeta, (1 + unit(16, 24), 1 + unit(16, 24, seed=1))),
    "special.gamma gradient": (jax.grad(lambda x: special.gammainc(x, 0.5).sum()), (unit(16, 24),)),
    "lax.clamp": (lax.clamp, (real(16, 24) - 1, real(16, 24), real(16, 24) + 1)),
    "lax.clamp by scalars": (lambda x: lax.clamp(-0.5, x, 0.5), (real(16, 24),)),
    "numpy.where": (jnp.where, (flags(16, 24), real(16, 24), real(16, 24, seed=1))),
    "lax.select_n": (lax.select_n, (whole(16, 24, high=3), real(16, 24), real(16, 24, seed=1), real(16, 24, seed=2))),
    "lax.select_n by a scalar": (lambda k, a, b: lax.select_n(k > 0, a, b), (1.0, real(16, 24), real(16, 24, seed=1))),
    "lax.integer_pow": (lambda x: lax.integer_pow(x, 3), (real(16, 24),)),
    "lax.convert": (lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), (real(16, 24),)),
    "lax.bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.int64), (real(16, 24),)),
    "lax.bitcast to narrow": (lambda x: lax.bitcast_convert_type(x, jnp.int32), (real(16, 24),)),
    "lax.bitcast to wide": (lambda x: lax.bitcast_convert_type(x, jnp.int64), (whole(16, 24, 2),)),
    "lax.reduce_precision": (lambda x: lax.reduce_precision(x, 5, 10), (real(16, 24),)),
    "lax.complex": (lax.complex, (real(16, 24), real(16, 24, seed=1))),
    "lax.real and imag": (lambda x: lax.real(x) + lax.imag(x), (waves(16, 24),)),
    "lax.population_count": (lambda x: lax.population_count(x) + lax.clz(x), (whole(16, 24, high=99),)),
    "numpy.logical": (
        lambda a, b: jnp.logical_and(a, b) | jnp.logical_not(b) ^ a,
        (flags(16, 24), flags(16, 24, seed=1)),
    ),
    "numpy.nan_to_num": (jnp.nan_to_num, (real(16, 24),)),
    "numpy.angle": (jnp.angle, (waves(16, 24),)),
    "numpy.frexp": (jnp.frexp, (real(16, 24),)),
    "numpy.ldexp": (jnp.ldexp, (real(16, 24), whole(16, 24))),
    "numpy.modf": (jnp.modf, (real(16, 24),)),
    "numpy.clip": (lambda x: jnp.clip(x, -0.5, 0.5), (real(16, 24),)),
    "numpy.piecewise": (lambda x: jnp.piecewise(x, [x < 0, x > 1], [-1.0, 1.0, 0.0]), (real(16, 24),)),
    "numpy.select": (lambda x: jnp.select([x < 0, x > 1], [x, 2 * x], 0.0), (real(16, 24),)),
    "nn.standardize": (jax.nn.standardize, (real(16, 24),)),
    "nn.softmax": (jax.nn.softmax, (real(16, 24),)),
    "nn.softmax gradient": (jax.grad(lambda x: jax.nn.softmax(x)[:, 0].sum()), (real(16, 24),)),
    "nn.log_softmax gradient": (jax.grad(lambda x: jax.nn.log_softmax(x, 0)[0].sum()), (real(16, 24),)),
    "nn.logsumexp": (lambda x: jax.nn.logsumexp(x, axis=0), (real(16, 24),)),
    "nn.one_hot": (lambda k: jax.nn.one_hot(k, 8), (whole(16, 24),)),
}
