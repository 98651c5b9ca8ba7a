"""A small pass of the network whose numbers are known, to see whether a device can be trusted.

Some accelerators, drivers and compilers have given wrong structures without a word. The pass has drawn parameters and features, the
same everywhere; its numbers were computed on a processor in float32 and are those of double precision to about 1e-5.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from zoo.models.alphafold2.config import changed, preset
from zoo.models.alphafold2.convert import draw
from zoo.models.alphafold2.model import AlphaFold2

RESIDUES, ROWS, FURTHER = 16, 4, 6
CA = 1  # of the 37 atoms of a residue
EMBEDDINGS = "model.embeddings_and_evoformer"
SMALL = {f"{EMBEDDINGS}.evoformer_num_block": 1, f"{EMBEDDINGS}.extra_msa_stack_num_block": 1}
EXACT, USABLE = 1e-3, 3e-2  # of the largest number of a stage: float32, and bfloat16 or TF32
# Of each stage so many numbers at even distances.
COUNT = 6
EXPECTED: dict[str, tuple[float, ...]] = {
    "pairs": (-1.7081, 1.52596, -2.50164, 1.1897, -3.32385, 0.771816),
    "alignment": (-1.9736, -1.01059, -0.828557, 2.47481, 1.39531, -0.702882),
    "positions": (-30.1466, -30.7095, -43.4384, -26.3926, -24.5142, 32.1373),
    "distances of neighbours": (33.3919, 17.575, 11.6409, 22.3528, 40.4414, 29.6902),
    "pLDDT": (-0.342974, 0.545237, -0.660488, -0.199669, 0.188481, 0.015864),
    "aligned error": (-1.16004, -3.75876, -3.37256, -0.258316, -4.26732, -0.995024),
}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Attributes:
    stage: of the network.
    error: largest difference from the known numbers, as a share of the largest of them; nan where a number is not finite.
    """

    stage: str
    error: float

    @property
    def words(self) -> str:
        if not np.isfinite(self.error):
            return "numbers that are not finite"
        if self.error <= EXACT:
            return "right"
        return "right to the precision of bfloat16 or TF32" if self.error <= USABLE else "wrong"

    @property
    def ok(self) -> bool:
        return bool(self.error <= USABLE)


def features() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for name, shape in model().feature_shapes(RESIDUES, ROWS, FURTHER).items():
        whole = np.issubdtype(shape.dtype, np.integer)
        value = rng.integers(0, 20, shape.shape) if whole else rng.uniform(0, 1, shape.shape)
        found[name] = (np.ones(shape.shape) if "mask" in name else value).astype(shape.dtype)
    return found | {"residue_index": np.arange(RESIDUES, dtype=np.int32)}


def model() -> AlphaFold2:
    return AlphaFold2(changed(preset("model_3_ptm"), SMALL))


def numbers(device: jax.Device) -> dict[str, np.ndarray]:
    """The known numbers as this device computes them; of the structure the places of CA and how far neighbours are apart."""
    network = model()
    args = draw(network.parameter_shapes(), 0), features(), network.first_previous(RESIDUES)
    outputs, _ = jax.jit(network.iterate)(*jax.device_put(args, device))
    positions = np.asarray(outputs["structure_module"]["final_atom_positions"], np.float64)[:, CA]
    stages = {
        "pairs": outputs["representations"]["pair"],
        "alignment": outputs["representations"]["msa"],
        "positions": positions,
        "distances of neighbours": np.linalg.norm(np.diff(positions, axis=0), axis=-1),
        "pLDDT": outputs["predicted_lddt"]["logits"],
        "aligned error": outputs["predicted_aligned_error"]["logits"],
    }
    return {stage: sampled(np.asarray(values, np.float64)) for stage, values in stages.items()}


def sampled(values: np.ndarray) -> np.ndarray:
    return values.ravel()[np.linspace(0, values.size - 1, COUNT).astype(int)]


def judged(found: dict[str, np.ndarray]) -> list[Verdict]:
    """Each stage against the known numbers."""
    result = []
    for stage, known in EXPECTED.items():
        error = np.abs(found[stage] - np.array(known)).max() / np.abs(known).max()
        result.append(Verdict(stage, float(error)))
    return result
