"""Names of types alone."""

from numpy import ndarray

NDArray = ndarray
ArrayLike = object
