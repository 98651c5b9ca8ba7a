"""The compiled inner loop of `partition`. Importing this module imports numba."""

from __future__ import annotations

import numba
import numpy as np

from flowaware_core.search.partition import Places


@numba.njit(cache=True, nogil=True, error_model="numpy")
def reach(
    sums: np.ndarray,
    crossing: np.ndarray,
    places: Places,
    limit: float,
    counted: bool,
    cost: np.ndarray,
    place: np.ndarray,
    edge: np.ndarray,
) -> None:
    """Fills in the least sum of loads of stages of which the last is at a place and ends at an edge.

    Args:
        sums: [kinds, edges] seconds before each edge.
        crossing: [edges] bytes that pass.
        places: for groups of devices.
        limit: of a stage's load.
        counted: whether layers are numbers of stages; otherwise there is one, for any number.
        cost: [layers, places, edges] the sums, infinite before.
        place, edge: [layers, places, edges] place and end of the stage before; the place is -1 where there is none.
    """
    layers, count, edges = cost.shape
    for layer in range(layers):
        before = layer - 1 if counted else layer
        for at in range(count):
            row = sums[places.kind[at]]
            if layer == 0 and places.first[at]:
                for end in range(1, edges):
                    if row[end] > limit:
                        break
                    cost[layer, at, end] = row[end]
            if before < 0:
                continue
            for begin in range(1, edges - 1):
                # Those that send later are better only where they have cost less.
                least = np.inf
                for index in range(places.start[at], places.start[at + 1]):
                    other = places.before[index]
                    spent = cost[before, other, begin]
                    if spent >= least:
                        continue
                    least = spent
                    entry = crossing[begin] * places.byte_s[index] + places.latency_s[index]
                    for end in range(begin + 1, edges):
                        load = row[end] - row[begin] + entry
                        if load > limit:
                            break
                        if spent + load < cost[layer, at, end]:
                            cost[layer, at, end] = spent + load
                            place[layer, at, end] = other
                            edge[layer, at, end] = begin
