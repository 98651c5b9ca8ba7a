"""T5: an encoder and a decoder of text."""

from zoo.models.t5.config import T5Config as T5Config
from zoo.models.t5.model import T5 as T5
from zoo.models.t5.model import abstract_params as abstract_params
from zoo.models.t5.model import parameter_count as parameter_count
