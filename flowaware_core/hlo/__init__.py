"""Reads the text of a compiled, optimised HLO module: collectives, how often each part runs, FLOPs."""

from flowaware_core.hlo.collectives import KINDS, Collective, collectives
from flowaware_core.hlo.flops import flops
from flowaware_core.hlo.module import Module, parse

__all__ = ["KINDS", "Collective", "Module", "collectives", "flops", "parse"]
