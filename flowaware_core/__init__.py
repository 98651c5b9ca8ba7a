"""FlowAware: plans how to split any JAX function over any cluster, and runs it as planned.

import flowaware_core as fa
plan = fa.plan(task, cluster)
step = fa.apply(plan, task)
"""

from flowaware_core.accelerators import CARDS as CARDS
from flowaware_core.accelerators import unattached as unattached
from flowaware_core.api import MOST_AXES as MOST_AXES
from flowaware_core.api import STRATEGIES as STRATEGIES
from flowaware_core.api import DoesNotFit as DoesNotFit
from flowaware_core.api import Pin as Pin
from flowaware_core.api import Prepared as Prepared
from flowaware_core.api import Step as Step
from flowaware_core.api import apply as apply
from flowaware_core.api import changes as changes
from flowaware_core.api import compare as compare
from flowaware_core.api import describe as describe
from flowaware_core.api import plan as plan
from flowaware_core.api import resize as resize
from flowaware_core.audit import Audit as Audit
from flowaware_core.audit import audit as audit
from flowaware_core.cluster import GIB as GIB
from flowaware_core.cluster import Cluster as Cluster
from flowaware_core.cluster import Device as Device
from flowaware_core.cluster import Level as Level
from flowaware_core.deployment import Deployment as Deployment
from flowaware_core.deployment import deployment as deployment
from flowaware_core.drawing import page as page
from flowaware_core.drawing import timeline as timeline
from flowaware_core.explain import diff as diff
from flowaware_core.joint import fastest as fastest
from flowaware_core.offload import Offloaded as Offloaded
from flowaware_core.offload import offload as offload
from flowaware_core.offloaded import OffloadedStep as OffloadedStep
from flowaware_core.pipeline import Pipeline as Pipeline
from flowaware_core.pipeline import pipeline as pipeline
from flowaware_core.pipelined import PipelinedStep as PipelinedStep
from flowaware_core.plan import Plan as Plan
from flowaware_core.spreading import imbalance as imbalance
from flowaware_core.spreading import spread as spread
from flowaware_core.task import Schedule as Schedule
from flowaware_core.task import Task as Task
from flowaware_core.training import Mean as Mean
from flowaware_core.training import Outcome as Outcome
from flowaware_core.training import Training as Training
