"""Types of the arguments that constructors share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

# An activation, initializer, regularizer or constraint: its name, its config,
# itself, or None where there is none.
Identifier: TypeAlias = str | Mapping[str, Any] | Callable[..., Any] | None

# Sites to normalise. A bare string is no list of one.
Sites: TypeAlias = tuple[str, ...] | list[str]

Switch: TypeAlias = bool | Literal["auto"]

Shape: TypeAlias = Sequence[int | None]
