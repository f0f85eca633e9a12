"""Symbolic tensors: Keras' own, and those of tf_keras, which are refused."""

from typing import Any

import keras


def refuse_tf_keras(owner: str, values: Any) -> None:
    """`TypeError` where one of the nested `values` belongs to tf_keras.

    tf_keras, which is Keras 2, need not be installed.
    """
    for value in keras.tree.flatten(values):
        if type(value).__module__.partition(".")[0] == "tf_keras":
            raise TypeError(
                f"{owner} is made for Keras 3 and takes nothing of tf_keras, "
                "which is Keras 2. Build the model with `keras`. Received: "
                f"{value!r}"
            )
