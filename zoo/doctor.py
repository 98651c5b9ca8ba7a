"""`python -m zoo.doctor`: whether the devices of this machine compute right numbers.

Every device makes a small pass of AlphaFold2 whose numbers are known, stage by stage. Wrong numbers come from drivers or
compilers; another version, or JAX_PLATFORMS=cpu, is then the way. Exit code 4 where a device is wrong.
"""

from __future__ import annotations

import argparse
import sys

import jax

from zoo.errors import DONE, PartlyFailed, exit_code
from zoo.models.alphafold2.selftest import judged, numbers


def main(argv: list[str]) -> int:
    """Prints a line per device and stage.

    Raises:
        PartlyFailed: a device is wrong.
    """
    argparse.ArgumentParser(prog="python -m zoo.doctor", description=__doc__).parse_args(argv)
    devices = jax.local_devices()
    print(f"{len(devices)} devices: {', '.join(sorted({one.device_kind for one in devices}))}")
    wrong = []
    for device in devices:
        verdicts = judged(numbers(device))
        for one in verdicts:
            print(f"{device}: {one.stage}: {one.words} (off by {one.error:.1e} of the largest number)")
        if not all(one.ok for one in verdicts):
            wrong.append(str(device))
    if wrong:
        raise PartlyFailed(
            f"{', '.join(wrong)}: the numbers are wrong; do not trust structures that were predicted there"
        )
    return DONE


if __name__ == "__main__":
    sys.exit(exit_code(main)(sys.argv[1:]))
