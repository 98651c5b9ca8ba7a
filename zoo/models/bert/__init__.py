"""BERT: a bidirectional encoder of text."""

from zoo.models.bert.config import BertConfig as BertConfig
from zoo.models.bert.model import Bert as Bert
from zoo.models.bert.model import abstract_params as abstract_params
from zoo.models.bert.model import parameter_count as parameter_count
