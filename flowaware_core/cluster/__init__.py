"""Devices, the levels of links between them, and clusters made of both."""

from flowaware_core.cluster.mesh import Axis as Axis
from flowaware_core.cluster.mesh import Mesh as Mesh
from flowaware_core.cluster.model import GIB as GIB
from flowaware_core.cluster.model import Cluster as Cluster
from flowaware_core.cluster.model import Device as Device
from flowaware_core.cluster.model import Level as Level
