"""What differs between jax 0.4.34 and the newest jax, in one place; nothing else asks for a version.

Read `Jaxpr`, `ClosedJaxpr`, `JaxprEqn`, `Literal`, `Var`, `DropVar`, `Primitive`, `ShapedArray` and `jaxpr_as_fun` from here.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.extend.core
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive, Var, jaxpr_as_fun

__all__ = [
    "KNOWS_COLLECTIVE_TIMEOUTS",
    "VERSION",
    "ClosedJaxpr",
    "DropVar",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Memory",
    "Primitive",
    "ShapedArray",
    "Var",
    "backend",
    "bind",
    "bind_remat",
    "compiler_options",
    "complete_coordination_client",
    "cost",
    "enable_x64",
    "excerpt",
    "jaxpr_as_fun",
    "memory",
    "mesh",
    "shard_map",
    "source",
    "use_partitionable_random_numbers",
    "variables",
    "without_references",
]

VERSION: tuple[int, ...] = jax.__version_info__

# Whether XLA takes xla_cpu_collective_call_*_timeout_seconds; it aborts the process on a flag it does not know (0.7.0 did).
KNOWS_COLLECTIVE_TIMEOUTS: bool = VERSION >= (0, 8, 0)

# A variable nobody reads. It moved house between the versions, and the old address warns in the new one.
DropVar: type = jax.extend.core.DropVar if hasattr(jax.extend.core, "DropVar") else jax.core.DropVar


def bind(equation: JaxprEqn, values: Sequence[Any], params: Mapping[str, Any] | None = None) -> list[Any]:
    """Evaluates one equation of a jaxpr on `values` and returns its results as a list.

    Keeps the equation's own context (compute type, random number scheme) as it was when traced.

    Args:
        equation: what to evaluate.
        values: one value or tracer per input variable.
        params: used instead of `equation.params`, e.g. with an inner jaxpr replaced by an equivalent one.
    """
    primitive = equation.primitive
    bound = primitive.get_bind_params(dict(equation.params if params is None else params))
    # The old form is a pair: the functions that come before the values, and the remaining parameters.
    functions, keywords = bound if isinstance(bound, tuple) else ((), bound)
    with equation.ctx.manager:
        results = primitive.bind(*functions, *values, **keywords)
    return list(results) if primitive.multiple_results else [results]


def without_references(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program where arrays that it makes and changes in place are values that it passes on."""
    if not any(type(effect).__name__ == "InternalMutableArrayEffect" for effect in closed.effects):
        return closed
    discharge = importlib.import_module("jax._src.state.discharge").discharge_state  # has no public address
    if "consts" not in inspect.signature(discharge).parameters:
        found: ClosedJaxpr = discharge(closed)
        return found
    return ClosedJaxpr(*discharge(closed.jaxpr, closed.consts))


def excerpt(jaxpr: Jaxpr, inputs: Sequence[Any], outputs: Sequence[Any], equations: Sequence[JaxprEqn]) -> ClosedJaxpr:
    """Some equations of a jaxpr as a program; `inputs` and `outputs` are the variables that go in and out."""
    changed: dict[str, Any] = {
        "constvars": [],
        "invars": list(inputs),
        "outvars": list(outputs),
        "eqns": list(equations),
    }
    if VERSION < (0, 5):
        changed["debug_info"] = None  # it knows the names of the whole's arguments, and insists on their number
    return ClosedJaxpr(jaxpr.replace(**changed), ())


def variables(atoms: Sequence[Any]) -> list[Any]:
    """The atoms of an equation or a jaxpr that are no literals."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def source(equation: JaxprEqn) -> str:
    """Where in the traced program an equation stands, as "file.py:12 (function)", the same wherever the file is installed; "" where
    it does not know."""
    from jax.extend import source_info_util

    found = re.match(r"(?:.*[/\\])?(.+?):(\d+)(?::\d+)? (\(.*\))$", source_info_util.summarize(equation.source_info))
    return "{}:{} {}".format(*found.groups()) if found else ""


def mesh(devices: Any, names: Sequence[str]) -> jax.sharding.Mesh:
    """A mesh whose axes are all left to the compiler's partitioner (the newest default is explicit axes).

    Args:
        devices: array of devices, one dimension per axis.
        names: the names of the axes, from outside to inside.
    """
    axis_type = getattr(jax.sharding, "AxisType", None)
    if axis_type is None:
        return jax.sharding.Mesh(np.asarray(devices), tuple(names))
    return jax.sharding.Mesh(np.asarray(devices), tuple(names), axis_types=(axis_type.Auto,) * len(names))


def shard_map(
    function: Callable[..., Any], mesh: jax.sharding.Mesh, in_specs: Any, out_specs: Any
) -> Callable[..., Any]:
    """`function` run once per device of `mesh` on its own shards, over all axes, replication unchecked."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    from jax.experimental.shard_map import shard_map as experimental

    return experimental(function, mesh, in_specs=in_specs, out_specs=out_specs, check_rep=False)


def enable_x64() -> Any:
    """A context in which this thread has 64-bit types, whatever the process was set to."""
    home: Any = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    return home.enable_x64(True)


def use_partitionable_random_numbers() -> None:
    """Makes random numbers independent of how they are sharded, for the whole process, as the newest jax does by default.

    Call before tracing: a jaxpr remembers the scheme it was traced with. On 0.4.34 this changes which numbers a key gives.
    """
    jax.config.update("jax_threefry_partitionable", True)


def complete_coordination_client() -> None:
    """Gives 0.4.34's client of the coordination service the question `key_value_try_get`: a value, at once or an error.

    Newer libraries of checkpoints ask it as soon as there is more than one process.
    """
    try:
        client: Any = importlib.import_module("jaxlib.xla_extension").DistributedRuntimeClient
    except ImportError:  # its address in 0.4.34; newer ones answer the question
        return
    if not hasattr(client, "key_value_try_get"):
        client.key_value_try_get = lambda self, key: self.blocking_key_value_get(key, 50)  # ms


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device for a compiled program.

    Attributes:
        arguments: what the call gets.
        outputs: what it returns, donated ones included.
        temporaries: what it needs in between.
        aliases: the part of the outputs that lies in the memory of donated arguments.
    """

    arguments: int
    outputs: int
    temporaries: int
    aliases: int

    @property
    def total(self) -> int:
        """The most that is held at once. The backends' own "peak" is not used: on CPU it leaves the temporaries out."""
        return self.temporaries + self.arguments + self.outputs - self.aliases

    def to_json(self) -> dict[str, int]:
        """The fields and the total, in bytes."""
        return {**dataclasses.asdict(self), "total": self.total}


def memory(compiled: jax.stages.Compiled) -> Memory | None:
    """Memory per device of a compiled program, None where the backend does not say."""
    try:
        stats: Any = compiled.memory_analysis()
    except NotImplementedError:
        return None
    if stats is None:
        return None
    return Memory(
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
        aliases=stats.alias_size_in_bytes,
    )


def cost(compiled: jax.stages.Compiled) -> dict[str, float]:
    """XLA's own count ("flops", "bytes accessed", ...) for one device, loop bodies counted once; {} where it has none."""
    analysis: Any = compiled.cost_analysis()
    if isinstance(analysis, list):
        analysis = analysis[0] if analysis else None
    return dict(analysis or {})


def backend(compiled: jax.stages.Compiled) -> str:
    """The platform a program was compiled for: "cpu", "gpu", or "cuda" for a card that is not attached."""
    shardings: Any = jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))
    devices = [device for sharding in shardings[:1] for device in sharding.device_set]
    return str(devices[0].platform) if devices else "cpu"


def compiler_options(platform: str, optimise: bool = True) -> dict[str, Any]:
    """Options for compiling a planned program.

    The newest CPU compiler hands reductions and convolutions to a library whose loops fuse with nothing around them:
    values that are never written on an accelerator are then kept in memory, and steps of convolutional networks were
    measured a quarter slower. The option is unknown to 0.4.34, which has no such library.

    It also joins what is computed again in the backward pass with what was computed first, unless barriers are left standing.
    On 0.4.34 only the environment could say so: there a CPU saves no memory by computing again outside loops.

    The GPU compiler chooses among kernels by trying them; for a card that is not attached its first guess must do, which for
    products that it writes itself need not exist.

    Args:
        platform: what is compiled for.
        optimise: whether the machine code shall be fast to run rather than fast to make.
    """
    if platform == "gpu":
        return {} if optimise else {"xla_gpu_enable_triton_gemm": False}
    options: dict[str, str | bool | int] = {} if optimise else {"xla_backend_optimization_level": 0}
    if platform == "cpu" and VERSION >= (0, 8):
        options["xla_cpu_experimental_ynn_fusion_type"] = ""
        options["xla_disable_hlo_passes"] = "cse_barrier_expander"
    return options


def bind_remat(equation: JaxprEqn, inner: ClosedJaxpr, values: Sequence[Any]) -> list[Any]:
    """Binds a remat equation again with another body, `inner`; what that body closes over becomes leading arguments."""
    count = len(inner.consts)

    def open_body(*args: Any) -> list[Any]:
        return jaxpr_as_fun(ClosedJaxpr(inner.jaxpr, args[:count]))(*args[count:])

    given = [*inner.consts, *values]
    body = jax.make_jaxpr(open_body)(*given)
    assert not body.consts, "every value of the body is an argument"
    return bind(equation, given, {**equation.params, "jaxpr": body.jaxpr})
