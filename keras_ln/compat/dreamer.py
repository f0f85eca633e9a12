"""The layer-normalised GRU of Dreamer and its ports.

Letters: D input features, U units.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_ln.compat.layouts import Arrays, Layout, epsilon_of, load
from keras_ln.engine import arguments
from keras_ln.layers.rnn.ln_gru import LNGRUCell


def _split(cell: Any, arrays: Arrays, x_first: bool) -> Arrays:
    rows = arrays.pop("both")
    sizes = (-cell.units, cell.units)
    above, below = np.split(rows, [sizes[not x_first]])
    arrays["kernel"], arrays["recurrent_kernel"] = (
        (above, below) if x_first else (below, above)
    )
    # Its update gate is sigmoid(z - 1).
    arrays["sum_beta"][: cell.units] -= 1.0
    return arrays


# The owner, the names of the kernel, its bias, gamma and beta, whether the rows
# of x come before those of h, and the epsilon if it is fixed.
_TABLE = (
    ("Dreamer v2", "kernel bias gamma beta", True, 1e-3),
    (
        "Dreamer v3 of 2023",
        "gru/kernel gru/bias gru/norm/scale gru/norm/bias",
        False,
        1e-3,
    ),
    (
        "dreamerv3-torch",
        "GRU_linear.weight GRU_linear.bias GRU_norm.weight GRU_norm.bias",
        True,
        1e-3,
    ),
    (
        "sheeprl",
        "linear.weight linear.bias layer_norm.weight layer_norm.bias",
        False,
        None,
    ),
)
# By the name of gamma, which none of the others has.
_LAYOUTS = {}
for _owner, _names, _x_first, _epsilon in _TABLE:
    _kernel, _bias, _gamma, _beta = _names.split()
    _in_torch = "." in _kernel
    _LAYOUTS[_gamma] = Layout(
        f"the GRU of {_owner}",
        LNGRUCell,
        {
            _kernel: ("both", "G D+U" if _in_torch else "D+U G"),
            _gamma: ("sum_gamma", "G"),
            _beta: ("sum_beta", "G"),
            _bias: ("sum_bias", "G"),
        },
        settings={"normalize": ("sum",), "use_bias": False, "groups": "all"}
        | ({"epsilon": _epsilon} if _epsilon else {}),
        free=("epsilon", "activation"),
        key=r"(?:.*[./])?{}(?::0)?()",
        # Its are reset, candidate, update.
        gates=(2, 0, 1),
        transposed=_in_torch,
        optional=(_bias,),
        arrange=functools.partial(_split, x_first=_x_first),
    )


@keras.saving.register_keras_serializable(package="keras_ln")
def dreamer_beta(shape: Any, dtype: Any = None) -> Any:
    """The initial beta (3U,) of Dreamer's GRU: -1 for z, else 0.

    >>> from keras_ln import compat
    >>> list(map(float, compat.dreamer_beta((6,))))
    [-1.0, -1.0, 0.0, 0.0, 0.0, 0.0]
    """
    zeros = keras.ops.zeros(shape, dtype)
    units = shape[0] // 3
    return keras.ops.concatenate([zeros[:units] - 1.0, zeros[units:]])


def dreamer_gru_arguments(
    units: int, epsilon: float = 1e-3, bias: bool = False
) -> dict[str, Any]:
    """Arguments of `LNGRU(Cell)` for the GRU of Dreamer.

    A new layer starts with `dreamer_beta`: Dreamer's update gate is
    `sigmoid(z - 1)`.

    Args:
        units: the size of its state.
        epsilon: of its normalisation: 1e-3, but 1e-5 in Dreamer v2 of sheeprl.
        bias: whether its kernel has a bias, which is added before the
            normalisation, as in Dreamer v2.

    Returns:
        Keyword arguments of `keras_ln.LNGRU` and `keras_ln.LNGRUCell`.

    >>> from keras_ln import LNGRU, compat
    >>> LNGRU(**compat.dreamer_gru_arguments(4)).normalize
    ('sum',)
    """
    return {
        "units": units,
        "normalize": ("sum",),
        "epsilon": epsilon,
        "beta_initializer": dreamer_beta,
        "use_sum_bias": bool(bias),
    }


def load_dreamer_gru(layer: Any, weights: Any) -> Any:
    """Loads the layer-normalised GRU of Dreamer or of one of its ports.

    It computes `[r h~ z] = LN([x, h] K)`, with one mean for all three,
    `h~ = tanh(sigmoid(r) * h~)` and an update gate `sigmoid(z - 1)`. The
    function reorders the columns to z, r, h, and subtracts the 1 from z's beta.

    | from                    | names of the weights                  | rows |
    |-------------------------|---------------------------------------|------|
    | Dreamer v2              | kernel, bias, gamma, beta             | x, h |
    | Dreamer v3 of 2023      | gru/kernel, gru/norm/{scale,bias}     | h, x |
    | NM512's dreamerv3-torch | GRU_linear.weight, GRU_norm.*         | x, h |
    | sheeprl                 | linear.{weight,bias}, layer_norm.*    | h, x |

    Args:
        layer: an `LNGRU` or `LNGRUCell` with the arguments from
            `dreamer_gru_arguments`; the function builds it if necessary.
        weights: the module, its `state_dict()`, or arrays by name: the kernel
            (D + U, 3U), in torch (3U, D + U), a bias (3U) if it has one, and
            gamma and beta (3U) by the names above. Prefixes are ignored. The
            epsilon of sheeprl's layer is checked only if you pass the module.

    Returns:
        The layer.

    Raises:
        ValueError: unless the layer's settings (the message has those that do)
            and the weights fit.

    Source: https://github.com/danijar/dreamerv2, dreamerv2/common/nets.py.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> weights = {name: np.ones(12) for name in ("bias", "gamma", "beta")}
    >>> weights["kernel"] = np.ones((3 + 4, 12))
    >>> arguments = compat.dreamer_gru_arguments(4, bias=True)
    >>> layer = compat.load_dreamer_gru(keras_ln.LNGRU(**arguments), weights)
    >>> tuple(layer(np.ones((2, 7, 3))).shape)
    (2, 4)
    """
    given = weights
    if hasattr(weights, "state_dict"):
        given = weights.state_dict()
    keys = " ".join(map(str, given)) if isinstance(given, Mapping) else ""
    for gamma, layout in _LAYOUTS.items():
        if re.search(rf"(^|[ ./]){re.escape(gamma)}(:0)?( |$)", keys):
            return load(layout, layer, given, **epsilon_of(weights))
    raise arguments.wrong(
        "weights",
        f"the GRU of Dreamer, with {', '.join(list(_LAYOUTS)[:-1])} or "
        f"{list(_LAYOUTS)[-1]} among its names",
        keys or type(weights).__name__,
    )
