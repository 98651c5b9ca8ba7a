"""Products, convolutions, windows, Fourier transforms and linear algebra, with their gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.contract.cases.values import Case, positive_definite, real, waves, whole


def _dot(contract: Any, batch: Any = ((), ())) -> Any:
    return lambda x, y: lax.dot_general(x, y, (contract, batch))


def _conv_cases(name: str, x: np.ndarray, w: np.ndarray, strides: Any = None, **options: Any) -> dict[str, Case]:
    """The convolution and its gradients with respect to both operands."""
    settings = {"padding": "SAME", **options}
    steps = strides or (1,) * (x.ndim - 2)

    def forward(a: Any, b: Any) -> Any:
        return lax.conv_general_dilated(a, b, steps, **settings)

    def squares(a: Any, b: Any) -> Any:
        return (forward(a, b) ** 2).sum()

    return {f"conv {name}": (forward, (x, w)), f"conv {name} gradient": (jax.grad(squares, argnums=(0, 1)), (x, w))}


def _pool(operation: Any, start: Any, padding: str = "VALID", strides: Any = (1, 2, 2, 1)) -> Any:
    return lambda x: lax.reduce_window(x, start, operation, (1, 2, 2, 1), strides, padding)


NHWC = ("NHWC", "HWIO", "NHWC")
IMAGES = real(8, 8, 8, 16)

CASES: dict[str, Case] = {
    "dot": (jnp.dot, (real(16, 24), real(24, 32))),
    "dot of vectors": (jnp.dot, (real(64), real(64, seed=1))),
    "matvec": (jnp.matmul, (real(16, 24), real(24))),
    "matmul of stacks": (jnp.matmul, (real(8, 16, 24), real(8, 24, 32))),
    "matmul of one and many": (jnp.matmul, (real(8, 16, 24), real(24, 32))),
    "dot over a first dimension": (_dot(((0,), (0,))), (real(24, 16), real(24, 32))),
    "dot over two dimensions": (_dot(((1, 2), (0, 1))), (real(16, 8, 24), real(8, 24, 32))),
    "dot with two batch dimensions": (_dot(((3,), (2,)), ((0, 2), (0, 1))), (real(8, 16, 8, 24), real(8, 8, 24, 32))),
    "dot with a batch dimension inside": (_dot(((0,), (2,)), ((1,), (0,))), (real(24, 8, 16), real(8, 32, 24))),
    "dot of integers": (jnp.dot, (whole(16, 24), whole(24, 32))),
    "dot of narrow numbers": (
        lambda x, y: jnp.dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=jnp.float32),
        (np.round(real(16, 24)), np.round(real(24, 32))),
    ),
    "outer by dot": (_dot(((), ())), (real(16), real(24))),
    "einsum": (lambda x, y: jnp.einsum("bqhd,bkhd->bhqk", x, y), (real(8, 8, 8, 16), real(8, 16, 8, 16))),
    "einsum of three": (lambda x, y, z: jnp.einsum("ij,jk,kl->il", x, y, z), (real(16, 8), real(8, 24), real(24, 16))),
    "einsum with a sum": (lambda x: jnp.einsum("ijk->j", x), (real(8, 16, 24),)),
    "tensordot": (lambda x, y: jnp.tensordot(x, y, 2), (real(16, 8, 24), real(8, 24, 32))),
    "dot gradient": (jax.grad(lambda x, y: (jnp.dot(x, y) ** 2).sum(), (0, 1)), (real(16, 24), real(24, 32))),
    "attention": (
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v),
        tuple(real(8, 16, 8, 8, seed=s) for s in range(3)),
    ),
    "ragged_dot": (
        lambda x, w: lax.ragged_dot(x, w, jnp.array([4, 8, 2, 2], jnp.int32)) if hasattr(lax, "ragged_dot") else x,
        (real(16, 24), real(4, 24, 32)),
    ),
    **_conv_cases("2d", IMAGES, real(3, 3, 16, 24), dimension_numbers=NHWC),
    **_conv_cases("strided", IMAGES, real(3, 3, 16, 24), (2, 2), dimension_numbers=NHWC),
    **_conv_cases("pointwise", IMAGES, real(1, 1, 16, 24), dimension_numbers=NHWC),
    **_conv_cases("pointwise strided", IMAGES, real(1, 1, 16, 24), (2, 2), dimension_numbers=NHWC),
    **_conv_cases("valid", IMAGES, real(3, 3, 16, 24), padding="VALID", dimension_numbers=NHWC),
    **_conv_cases("dilated", IMAGES, real(3, 3, 16, 24), rhs_dilation=(2, 2), dimension_numbers=NHWC),
    **_conv_cases(
        "of a dilated input",
        IMAGES,
        real(3, 3, 16, 24),
        padding=((1, 2),) * 2,
        lhs_dilation=(2, 2),
        dimension_numbers=NHWC,
    ),
    **_conv_cases("grouped", IMAGES, real(3, 3, 2, 32), feature_group_count=8, dimension_numbers=NHWC),
    **_conv_cases("depthwise", IMAGES, real(3, 3, 1, 16), feature_group_count=16, dimension_numbers=NHWC),
    **_conv_cases("depthwise, two each", IMAGES, real(3, 3, 1, 32), feature_group_count=16, dimension_numbers=NHWC),
    **_conv_cases("channels first", real(8, 16, 8, 8), real(24, 16, 3, 3)),
    **_conv_cases("1d", real(8, 16, 32), real(24, 16, 3)),
    **_conv_cases("1d causal", real(8, 16, 32), real(24, 16, 3), padding=((2, 0),)),
    **_conv_cases("3d", real(8, 8, 4, 4, 4), real(16, 8, 3, 3, 3)),
    **_conv_cases("batch groups", real(16, 4, 6, 6), real(16, 4, 3, 3), batch_group_count=8),
    **_conv_cases("batch groups of one", real(8, 4, 6, 6), real(16, 4, 3, 3), batch_group_count=8),
    "conv transpose": (
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=NHWC),
        (IMAGES, real(3, 3, 16, 24)),
    ),
    "conv transpose gradient": (
        jax.grad(lambda x, w: (lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=NHWC) ** 2).sum(), (0, 1)),
        (IMAGES, real(3, 3, 16, 24)),
    ),
    "local convolution": (
        lambda x, w: lax.conv_general_dilated_local(x, w, (1, 1), "VALID", (3, 3), dimension_numbers=NHWC),
        (real(8, 6, 6, 8), real(4, 4, 72, 16)),
    ),
    "patches": (lambda x: lax.conv_general_dilated_patches(x, (3, 3), (1, 1), "SAME"), (real(8, 16, 8, 8),)),
    "pool max": (_pool(lax.max, -np.inf), (IMAGES,)),
    "pool min": (_pool(lax.min, np.inf), (IMAGES,)),
    "pool sum": (_pool(lax.add, 0.0), (IMAGES,)),
    "pool max overlapping": (_pool(lax.max, -np.inf, "SAME", (1, 1, 1, 1)), (IMAGES,)),
    "pool max gradient": (jax.grad(lambda x: (_pool(lax.max, -np.inf)(x) ** 2).sum()), (IMAGES,)),
    "pool max overlapping gradient": (
        jax.grad(lambda x: (_pool(lax.max, -np.inf, "SAME", (1, 1, 1, 1))(x) ** 2).sum()),
        (IMAGES,),
    ),
    "pool max second derivative": (jax.jacfwd(lambda s, x: _pool(lax.max, -np.inf)(s * x)), (1.0, IMAGES)),
    "pool mean gradient": (jax.grad(lambda x: (_pool(lax.add, 0.0)(x) ** 2).sum()), (IMAGES,)),
    "pool by a computation": (_pool(lambda a, b: a + b + 0.1 * a * b, np.float64(0)), (IMAGES,)),
    "pool product": (_pool(lax.mul, 1.0), (IMAGES,)),
    "resize": (lambda x: jax.image.resize(x, (8, 16, 16, 16), "bilinear"), (IMAGES,)),
    "resize nearest": (lambda x: jax.image.resize(x, (8, 16, 16, 16), "nearest"), (IMAGES,)),
    "fft": (lambda x: jnp.fft.fft(x), (waves(8, 16, 24),)),
    "fft of a middle dimension": (lambda x: jnp.fft.fft(x, axis=1), (waves(8, 16, 24),)),
    "fft2": (lambda x: jnp.fft.ifft2(jnp.fft.fft2(x)), (waves(8, 16, 24),)),
    "rfft": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), (real(8, 16, 24),)),
    "rfft gradient": (jax.grad(lambda x: (jnp.abs(jnp.fft.rfft(x)) ** 2).sum()), (real(8, 16, 24),)),
    "fftshift": (lambda x: jnp.fft.fftshift(x, 1), (real(8, 16, 24),)),
    "cholesky": (jnp.linalg.cholesky, (positive_definite(8, 4, 4),)),
    "cholesky gradient": (jax.grad(lambda x: jnp.linalg.cholesky(x).sum()), (positive_definite(8, 4, 4),)),
    "eigh": (lambda x: jnp.linalg.eigh(x), (positive_definite(8, 4, 4),)),
    "eigh gradient": (jax.grad(lambda x: jnp.linalg.eigh(x)[0].sum()), (positive_definite(8, 4, 4),)),
    "eigvalsh": (jnp.linalg.eigvalsh, (positive_definite(8, 8, 8),)),
    "eig": (lambda x: jnp.linalg.eig(x), (real(8, 4, 4),)),
    "svd": (lambda x: jnp.linalg.svd(x, full_matrices=False), (real(8, 6, 4),)),
    "singular values": (lambda x: jnp.linalg.svd(x, compute_uv=False), (real(8, 6, 4),)),
    "qr": (jnp.linalg.qr, (real(8, 6, 4),)),
    "qr gradient": (jax.grad(lambda x: jnp.linalg.qr(x)[1].sum()), (real(8, 6, 4),)),
    "lu": (lambda x: lax.linalg.lu(x), (real(8, 4, 4),)),
    "solve": (jnp.linalg.solve, (positive_definite(8, 4, 4), real(8, 4, 8))),
    "solve gradient": (
        jax.grad(lambda a, b: jnp.linalg.solve(a, b).sum()),
        (positive_definite(8, 4, 4), real(8, 4, 8)),
    ),
    "solve of one": (jnp.linalg.solve, (positive_definite(8, 8), real(8, 16))),
    "inv": (jnp.linalg.inv, (positive_definite(8, 4, 4),)),
    "det": (jnp.linalg.det, (positive_definite(8, 4, 4),)),
    "slogdet gradient": (jax.grad(lambda x: jnp.linalg.slogdet(x)[1].sum()), (positive_definite(8, 4, 4),)),
    "pinv": (jnp.linalg.pinv, (real(8, 6, 4),)),
    "lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (real(16, 4), real(16, 8))),
    "matrix_power": (lambda x: jnp.linalg.matrix_power(x, 3), (real(8, 4, 4),)),
    "triangular_solve": (
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
        (np.tril(positive_definite(8, 4, 4)), real(8, 4, 16)),
    ),
    "triangular_solve from the right": (
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=False, lower=True),
        (np.tril(positive_definite(8, 4, 4)), real(8, 16, 4)),
    ),
    "triangular_solve of one": (
        lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True),
        (np.tril(positive_definite(4, 4)), real(4, 16)),
    ),
    "cho_solve": (
        lambda a, b: jax.scipy.linalg.cho_solve((a, True), b),
        (np.tril(positive_definite(4, 4)), real(4, 16)),
    ),
    "expm": (jax.scipy.linalg.expm, (real(8, 4, 4) / 10,)),
    "householder_product": (lax.linalg.householder_product, (real(8, 6, 4), real(8, 4))),
    "tridiagonal_solve": (
        lax.linalg.tridiagonal_solve,
        (real(8, 16), real(8, 16, seed=1) + 5, real(8, 16, seed=2), real(8, 16, 8)),
    ),
    "tridiagonal": (lambda x: lax.linalg.tridiagonal(x), (positive_definite(8, 4, 4),)),
    "hessenberg": (lambda x: lax.linalg.hessenberg(x), (real(8, 4, 4),)),
    "schur": (lambda x: lax.linalg.schur(x), (real(8, 4, 4),)),
    "eigh_tridiagonal": (
        lambda d, e: jax.scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True),
        (real(8), real(7)),
    ),
    "cg": (
        lambda a, b: jax.scipy.sparse.linalg.cg(lambda v: a @ v, b, maxiter=3)[0],
        (positive_definite(16, 16), real(16)),
    ),
    "gmres": (
        lambda a, b: jax.scipy.sparse.linalg.gmres(lambda v: a @ v, b, maxiter=2)[0],
        (positive_definite(16, 16), real(16)),
    ),
    "symmetric_product": (
        lambda a, c: lax.linalg.symmetric_product(a, c) if hasattr(lax.linalg, "symmetric_product") else a,
        (real(8, 4, 6), positive_definite(8, 4, 4)),
    ),
}
