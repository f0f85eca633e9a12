"""What can run a recurrence: an implementation, and what it refuses."""

import dataclasses
from collections.abc import Callable, Mapping, Set
from typing import Any

from keras_ln.ops.cells.types import How, Spec
from keras_ln.ops.recurrence.arrays import ARRAYS


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One way to run a recurrence.

    It refuses every field of `Spec` that is not at its default, and every
    array, that it does not list: nothing that it does not know of is ignored.
    """

    # `run(spec, arrays, how)`: the outputs by name, as `scan.forward` gives
    # them.
    run: Callable[[Spec, dict[str, Any], How], dict[str, Any]]
    # `reads(spec, how)`: the fields of `Spec`, the arrays and the weights that
    # it heeds.
    reads: Callable[[Spec, How], Set[str]]
    # Whether the gradient is written by hand, of the cell's own equations.
    by_hand: bool
    # `reason(spec, arrays, how)`: a sentence on why it cannot run such arrays
    # of such dtypes, or None. It is asked once for equal ones, and without
    # arrays where nothing runs.
    reason: Callable[[Spec, Mapping[str, Any], How], str | None] | None = None
    # A sentence on why it cannot run here and now, or None, which is asked
    # first.
    unavailable: Callable[[], str | None] | None = None

    def refusal(
        self, name: str, spec: Spec, arrays: Mapping[str, Any], how: How
    ) -> str | None:
        """Why it cannot run such arrays of such dtypes, or None.

        The name is what messages call the implementation.
        """
        # The first four fields have no default.
        usual = Spec(*spec[:4])
        asked = [
            field
            for k, field in enumerate(Spec._fields)
            if k < 4 or spec[k] != usual[k]
        ]
        known = self.reads(spec, how)
        unread = [what for what in (*asked, *arrays) if what not in known]
        if unread:
            kind = "array" if unread[0] in ARRAYS else "setting or weight"
            return (
                f"The implementation {name!r} does not read the {kind} "
                f"`{unread[0]}`."
            )
        return None if self.reason is None else self.reason(spec, arrays, how)
