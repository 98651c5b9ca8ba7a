"""What one prediction run is asked to do."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any, Literal

from zoo.errors import UserError
from zoo.models.alphafold2.config import GROUPS, PRESETS
from zoo.typed import nearest

RANDOM = "random"
MARK = "random parameters: no structural meaning"


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """Options of `zoo.predict recipe=alphafold2`; conf/recipe/alphafold2.yaml says what each means."""

    models: str = "monomer_ptm"
    params: str | None = None
    alignments: Path | None = None
    msa: Literal["auto", "single"] = "auto"
    stage: Literal["all", "msa", "infer"] = "all"
    databases: Path | None = None
    msa_server: str | None = None
    cpus: int = 0
    templates: Path | None = None
    structures: Path | None = None
    hits: Path | None = None
    max_template_date: str | None = None
    references: Path | None = None
    recycles: int | None = None
    recycle_tolerance: float | None = None
    seeds: int = 1
    ensemble: int | None = None
    max_clusters: int | None = None
    max_further: int | None = None
    dropout: bool = False
    stop_at_score: float | None = None
    save_recycles: bool = False
    save_representations: bool = False
    save_features: bool = False
    plots: bool = True
    relax: Literal["none", "best", "all"] = "none"
    most_waste: float = 0.3
    memory_gib: float | None = None

    def __post_init__(self) -> None:
        least = {"recycles": 0, "seeds": 1, "ensemble": 1, "max_clusters": 1, "max_further": 0, "cpus": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise ValueError(f"{name}={value}; it must be a whole number of at least {bound}")
        for name in ("alignments", "databases", "templates", "structures", "hits", "references"):
            path = getattr(self, name)
            if path is not None and not path.exists():
                raise ValueError(f"{name}={path}: no such file or folder")
            if path is not None and not path.is_dir() and name not in ("hits", "templates"):
                raise ValueError(f"{name}={path} is a file; name the folder that it is in")
        if self.msa_server is not None and not self.msa_server.startswith(("http://", "https://")):
            raise ValueError(f"msa_server={self.msa_server}; write it as https://HOST")
        if self.msa_server is not None and self.databases is not None:
            raise ValueError("msa_server= and databases= both say where to search; give one of them")
        if self.msa == "single":
            if self.databases is not None or self.msa_server is not None or self.stage == "msa":
                other = "databases=" if self.databases else "msa_server=" if self.msa_server else "stage=msa"
                raise ValueError(f"msa=single searches nothing, so it goes with no {other}; leave one of them out")
            if self.alignments is not None and self.structures is None:
                raise ValueError(
                    "msa=single uses no alignments=; leave one of them out, or give structures= for templates alone"
                )
        if self.memory_gib is not None and not self.memory_gib > 0:
            raise ValueError(f"memory_gib={self.memory_gib}; it must be above 0")
        if self.hits is not None and self.structures is None:
            raise ValueError("hits= needs structures=, the folder of mmCIF files that the hits name")
        if self.max_template_date is not None:
            try:
                datetime.date.fromisoformat(self.max_template_date)
            except ValueError:
                raise ValueError(f"max_template_date={self.max_template_date}; write it as YYYY-MM-DD") from None
        if not 0 <= self.most_waste < 1:
            raise ValueError(f"most_waste={self.most_waste}; it must be at least 0 and below 1")

    @property
    def random(self) -> bool:
        return self.params == RANDOM

    def model_names(self) -> tuple[str, ...]:
        """The models, in order.

        Raises:
            UserError: one is not known, or monomer and multimer models are mixed.
        """
        names: list[str] = []
        for word in self.models.replace(" ", "").split(","):
            if word not in GROUPS and word not in PRESETS:
                known = (*GROUPS, *PRESETS)
                raise UserError(f"models={word} is not known{nearest(word, known)}; known are {', '.join(known)}")
            names += [name for name in GROUPS.get(word, (word,)) if name not in names]
        if len({"multimer" in name for name in names}) > 1:
            raise UserError(f"models={self.models} mixes monomer and multimer models; run them one after the other")
        return tuple(names)

    def changes(self) -> dict[str, Any]:
        """Values of the models' configuration that these options set."""
        return {"model.global_config.eval_dropout": True} if self.dropout else {}
