"""Where a process finds its group."""

from __future__ import annotations

import pytest

from zoo.errors import UserError
from zoo.runtime.processes import Group, here

EXPLICIT = {"ZOO_PROCESS_COUNT": "4", "ZOO_PROCESS_INDEX": "3", "ZOO_COORDINATOR": "node0:1234"}


@pytest.mark.parametrize(
    ("environ", "group"),
    [
        ({}, Group()),
        (EXPLICIT, Group(3, 4, "node0:1234")),
        ({**EXPLICIT, "ZOO_LAUNCHED": "1"}, Group(3, 4, "node0:1234", launched=True)),
        ({"ZOO_PROCESS_COUNT": "1", "ZOO_PROCESS_INDEX": "0"}, Group()),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, Group(5, 8)),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, Group()),  # a batch script without srun
    ],
)
def test_the_environment_names_the_group(environ: dict[str, str], group: Group) -> None:
    assert here(environ) == group


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"ZOO_PROCESS_INDEX": "4"}, "between 0"),
        ({"ZOO_PROCESS_INDEX": "-1"}, "between 0"),
        ({"ZOO_PROCESS_INDEX": "one"}, "whole numbers"),
        ({"ZOO_PROCESS_COUNT": ""}, "whole numbers"),
        ({"ZOO_COORDINATOR": ""}, "ZOO_COORDINATOR is missing"),
    ],
)
def test_contradictions_are_the_users(changed: dict[str, str], word: str) -> None:
    with pytest.raises(UserError, match=word):
        here({**EXPLICIT, **changed})
