"""ResNet: residual networks for images."""

from zoo.models.resnet.config import ResNetConfig as ResNetConfig
from zoo.models.resnet.model import ResNet as ResNet
from zoo.models.resnet.model import abstract_variables as abstract_variables
from zoo.models.resnet.model import initial_variables as initial_variables
from zoo.models.resnet.model import parameter_count as parameter_count
