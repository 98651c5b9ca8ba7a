"""PNASNet-5: a network of equal cells for images."""

from zoo.models.pnasnet.config import PNASNetConfig as PNASNetConfig
from zoo.models.pnasnet.model import PNASNet as PNASNet
from zoo.models.pnasnet.model import abstract_variables as abstract_variables
from zoo.models.pnasnet.model import parameter_count as parameter_count
