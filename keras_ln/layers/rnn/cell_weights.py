"""The weights of a recurrent cell: names, shapes, initial values.

Letters: D input features, U units, n gates.
"""

from typing import Any

import keras

from keras_ln._keras import torch_device
from keras_ln.layers.base_layer import BaseLayer
from keras_ln.ops import arguments
from keras_ln.ops.cells.types import Cell, Vector


class CellWeights(BaseLayer):
    """A layer with `kernel`, `recurrent_kernel` and the vectors of a cell."""

    # The cell of `keras_ln.ops`.
    equations: Cell
    # Every vector that there can be, where these are more than the equations'.
    vectors: tuple[Vector, ...]
    # The names of all weights, in the order of creation, where these are more.
    weight_names: tuple[str, ...]
    # Whether mixed precision casts the kernels on the way into a call.
    matrix_autocast = True

    units: int
    use_bias: bool
    # The sites that are normalised, and whether there are redundant betas.
    normalize: tuple[str, ...] = ()
    center = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Names the weights of the cell."""
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if "equations" in own and "vectors" not in own:
            cls.vectors = cls.equations.vectors
        if {"equations", "vectors"} & {*own} and "weight_names" not in own:
            names = [vector.name for vector in cls.vectors]
            cls.weight_names = ("kernel", "recurrent_kernel", *names)

    def build(self, input_shape: Any) -> None:
        """Creates the weights for inputs (B, D)."""
        arguments.check_rank("inputs", input_shape, "batch, features")
        features = arguments.check_known("inputs", input_shape, -1)
        for name, shape in self.weight_shapes(features).items():
            if len(shape) == 2:
                self.add_matrix(name, shape)
            else:
                self.add_vector(name, shape, self.initial_value(name))

    def weight_shapes(self, features: int) -> dict[str, tuple[int, ...]]:
        """Matrices, bias, gammas and betas in order of creation, built or not.

        Args:
            features: D.
        """
        units, width = self.units, self.equations.gates * self.units
        return {
            "kernel": (features, width),
            "recurrent_kernel": (units, width),
            **{v.name: (v.size * units,) for v in self.vectors if self.has(v)},
        }

    def has(self, vector: Vector) -> bool:
        """Whether the cell has the vector, as it was asked for."""
        if vector.site is None:
            return self.use_bias
        # The site without a name is always normalised.
        if vector.site and vector.site not in self.normalize:
            return False
        return self.center or not vector.redundant

    def add_matrix(self, name: str, shape: tuple[int, int]) -> None:
        """Creates `kernel` or `recurrent_kernel`."""
        prefix = name.removesuffix("_kernel")
        weight = self.add_weight(
            name=name,
            shape=shape,
            initializer=getattr(self, f"{prefix}_initializer"),
            regularizer=getattr(self, f"{prefix}_regularizer"),
            constraint=getattr(self, f"{prefix}_constraint"),
            autocast=self.matrix_autocast,
        )
        setattr(self, name, weight)

    def initial_value(self, name: str) -> Any:
        """The initializer of a vector."""
        kind = name.rpartition("_")[2]
        initializer = getattr(self, f"{kind}_initializer")
        # A copy, because an unseeded random initializer would give every weight
        # the same values.
        if name != "bias" and isinstance(
            initializer, keras.initializers.Initializer
        ):
            return initializer.clone()
        return initializer

    def tensors(self) -> dict[str, Any]:
        """The weights by name, in the dtypes of a call."""
        on_cpu = torch_device is not None and torch_device().startswith("cpu")
        tensors = {}
        for name in self.weight_names:
            weight = getattr(self, name)
            if weight is None:
                continue
            # On torch to convert a variable takes twice as long.
            tensor = getattr(weight, "value", weight) if on_cpu else None
            if not getattr(tensor, "is_cpu", False):
                tensor = keras.ops.convert_to_tensor(weight)
            tensors[name] = tensor
        return tensors
