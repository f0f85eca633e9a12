"""Types of the arguments that constructors share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from keras_ln.engine.spec import Switch as Switch

# An activation, initializer, regularizer or constraint: its name, its config,
# the object, or None.
Identifier: TypeAlias = str | Mapping[str, Any] | Callable[..., Any] | None

# Sites to normalise. A bare string is no list of one.
Sites: TypeAlias = tuple[str, ...] | list[str]

Shape: TypeAlias = Sequence[int | None]
