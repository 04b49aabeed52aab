"""Functions of the front's tensors that are no methods, in one place.

    from engine import tensor
    from engine.front import functions as fn

    hidden = fn.conv2d(images, filters, bias, padding=1).relu()
    loss = fn.cross_entropy(fn.dropout(hidden.reshape(len(hidden), -1), 0.1, seed=7) @ w, classes)

`core_functions` has those that are rows of the table of ops; `elementwise_functions`,
`axis_functions`, `product_functions`, `norm_functions`, `shape_functions`, `window_functions`,
`random_functions` and `loss_functions` those that are made of these. Names are those of PyTorch,
axes and shapes numpy's; docs/pytorch.md has a table of those that people use most.
"""

# ruff: noqa: F403 - each module says in its `__all__` what it gives

from engine.front import (
    axis_functions,
    core_functions,
    elementwise_functions,
    loss_functions,
    norm_functions,
    product_functions,
    random_functions,
    shape_functions,
    window_functions,
)
from engine.front.axis_functions import *
from engine.front.core_functions import *
from engine.front.elementwise_functions import *
from engine.front.loss_functions import *
from engine.front.norm_functions import *
from engine.front.product_functions import *
from engine.front.random_functions import *
from engine.front.shape_functions import *
from engine.front.window_functions import *

__all__ = (
    core_functions.__all__ + elementwise_functions.__all__ + axis_functions.__all__ + product_functions.__all__
    + norm_functions.__all__ + shape_functions.__all__ + window_functions.__all__ + random_functions.__all__
    + loss_functions.__all__
)  # fmt: skip
