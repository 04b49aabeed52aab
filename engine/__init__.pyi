# The public names of engine, each with the module that has it; read by type checkers and, at run time, by `__init__.py`.

from .autodiff import backward as backward
from .front import Module as Module
from .front import clear as clear
from .front import detect_anomaly as detect_anomaly
from .front import diagnose as diagnose
from .front import evaluation as evaluation
from .front import gradcheck as gradcheck
from .front import hessian as hessian
from .front import jacobian as jacobian
from .front import jvp as jvp
from .front import kept_bytes as kept_bytes
from .front import model as model
from .front import no_grad as no_grad
from .front import scope as scope
from .front import tensor as tensor
from .front import vmap as vmap
from .front.custom_ops import custom_op as custom_op
from .graph import Graph as Graph
from .graph import Tensor as Tensor
from .graph.lowering import Lowered as Lowered
from .kernels import KERNELS as KERNELS
from .kernels import Kernel as Kernel
from .ops import OPS as OPS
from .ops import Rule as Rule
from .runtime import Runtime as Runtime
from .training.tensor_optimizer import optimizer as optimizer
