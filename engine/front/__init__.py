"""The front: tensors to type at a prompt.

They use the same graph, derivatives, plans and kernels as everything else.

`tensor` makes one, `no_grad` stops recording, `gradcheck` compares derivatives with finite
differences, `model` makes a model of a function of tensors or of a `Module`, `diagnose` judges one;
they, and the other names here, are names of `engine` too. `engine.front.functions` has what is no
method, `modules` layers, `custom_ops` ops of one's own.
`engine.front.tensors` tells what tensors do, `value` what they are, `record` how a value is
computed and remembered, `reverse` how a gradient is.
"""

from engine.front.derivatives import grad, gradgradcheck, hessian, hvp, inference_mode, jacobian, jvp, vjp, vmap
from engine.front.diagnosing import diagnose
from engine.front.differences import GradCheck, gradcheck
from engine.front.modules import Module
from engine.front.randomness import evaluation
from engine.front.recorded_models import model
from engine.front.recording import scope
from engine.front.reverse import clear, kept_bytes
from engine.front.states import state
from engine.front.stepwise import detect_anomaly
from engine.front.tensors import EagerTensor, no_grad, tensor

__all__ = [
    "EagerTensor", "GradCheck", "Module", "clear", "detect_anomaly", "diagnose", "evaluation", "grad",
    "gradcheck", "gradgradcheck", "hessian", "hvp", "inference_mode", "jacobian", "jvp", "kept_bytes",
    "model", "no_grad", "scope", "state", "tensor", "vjp", "vmap",
]  # fmt: skip
