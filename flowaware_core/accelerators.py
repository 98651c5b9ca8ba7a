"""Accelerators that are not attached, as XLA's GPU compiler describes them: what an audit compiles for where no card is.

The compiler is a library that runs without any card. It is told what a card is: limits of CUDA's programming guide for the
compute capability, and clocks, caches and memory of NVIDIA's data sheets.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
from typing import Any

# What all supported cards have in common, then what each has.
_COMMON = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 48 * 1024,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 2**16 - 1,
    "block_dim_limit_z": 2**16 - 1,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
}
_HOPPER = {
    "shared_memory_per_core": 228 * 1024,
    "shared_memory_per_block_optin": 227 * 1024,
    "core_count": 132,
    "fpus_per_core": 128,
    "l2_cache_size": 50 * 2**20,
    "clock_rate_ghz": 1.98,
}
_AMPERE = {
    "shared_memory_per_core": 164 * 1024,
    "shared_memory_per_block_optin": 163 * 1024,
    "core_count": 108,
    "fpus_per_core": 64,
    "l2_cache_size": 40 * 2**20,
    "clock_rate_ghz": 1.41,
}
_CARDS: dict[str, tuple[str, int, dict[str, float]]] = {
    "a100": (
        "NVIDIA A100-SXM4-80GB",
        8,
        {**_AMPERE, "memory_bandwidth": 2_039 * 10**9, "device_memory_size": 80 * 2**30},
    ),
    "h100": (
        "NVIDIA H100 80GB HBM3",
        9,
        {**_HOPPER, "memory_bandwidth": 3_352 * 10**9, "device_memory_size": 80 * 2**30},
    ),
    "h200": ("NVIDIA H200", 9, {**_HOPPER, "memory_bandwidth": 4_800 * 10**9, "device_memory_size": 141 * 10**9}),
}
CARDS = tuple(sorted(_CARDS))


def unattached(name: str, count: int) -> list[Any]:
    """So many cards to compile for, as `jax.devices()` would give them; nothing can run on them.

    Args:
        name: one of `CARDS`.
        count: how many.

    Raises:
        ValueError: no such card, or XLA's GPU compiler is not installed.
    """
    if name not in _CARDS:
        raise ValueError(f"there is no card {name!r} to compile for; known are {', '.join(CARDS)}")
    if not installed():
        raise ValueError(
            f"compiling for {name} takes XLA's GPU compiler, which is not installed: pip install 'flowaware-zoo[gpu-audit]'"
        )
    import jax
    from jax.experimental import topologies

    if ctypes.util.find_library("cuda") is None and not getattr(jax.config, "jax_platforms", None):
        # Without NVIDIA's driver the compiler's plugin gives up, unless there is nothing that it shall run on.
        jax.config.update("jax_platforms", "cpu")
    try:
        topology = topologies.get_topology_desc(
            topology_name=f"{name} x {count}",
            platform="cuda",
            target_config=_description(name),
            topology=f"1x{count}x1",
        )
    except NotImplementedError:
        raise ValueError(
            f"compiling for {name}: JAX has not loaded XLA's GPU compiler; on a machine without NVIDIA's driver set "
            "JAX_PLATFORMS=cpu"
        ) from None
    return list(topology.devices)


def installed() -> bool:
    """Whether XLA's GPU compiler is here."""
    try:
        return importlib.util.find_spec("jax_plugins.xla_cuda12") is not None
    except ModuleNotFoundError:
        return False


def _description(name: str) -> str:
    """A card in the text form that the compiler reads."""
    title, major, facts = _CARDS[name]
    lines = [f"  {key}: {value}" for key, value in {**_COMMON, **facts}.items()]
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            f"  cuda_compute_capability {{ major: {major} minor: 0 }}",
            "}",
            'platform_name: "CUDA"',
            "dnn_version_info { major: 9 minor: 10 patch: 0 }",
            f'device_description_str: "{title}"',
        ]
    )
