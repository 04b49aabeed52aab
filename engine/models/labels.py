"""Class numbers as labels: their check, and their one-hot form.

What this module does not see: which model the labels are for, and where they come from.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError

Array = NDArray[Any]


def check_classes(classes: Array, count: int) -> None:
    """Raise EngineError unless all class numbers lie in 0..count-1."""
    if classes.size and not (int(classes.min()) >= 0 and int(classes.max()) < count):
        raise EngineError(
            f"labels reach from {classes.min()} to {classes.max()}; the outputs have {count} classes, from 0"
        )


def one_hot(classes: Array, count: int, dtype: Any) -> Array:
    """Return [n, count] with a 1 at each class number of `classes`, 0 elsewhere.

    `classes` has any shape of n elements. Raises EngineError for a number outside 0..count-1.
    """
    numbers = classes.reshape(-1)
    check_classes(numbers, count)
    made = np.zeros((len(numbers), count), dtype=dtype)
    made[np.arange(len(numbers)), numbers] = 1
    return made
