"""One call of the CPU kernels per sequence, and one for its gradient.

The kernels are C++, in the package keras-ln-kernels. Letters: B batch, T time,
D input features, U units.
"""

import functools
from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.activations import ACTIVATIONS
from keras_ln.ops.cells.types import Cell
from keras_ln.ops.dtypes import name_of
from keras_ln.ops.recurrence.forward import forward
from keras_ln.ops.recurrence.problem import Plan, Problem
from keras_ln.ops.recurrence.vjp import vjp

_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}
_DTYPES = {"float32", "float64"}
_STATES = ("h", "c")
# The names of zoneout's choices, by state.
_CHOICES = ("zoneout", "cell_zoneout")


def reason(problem: Problem) -> str | None:
    """Why the problem cannot be run so, or None."""
    plan, tensors = problem.plan, problem.tensors
    if plan.cell.in_kernels is None:
        return "The kernels have no cell with such sites and statistics."
    for name, known in _ACTIVATIONS.items():
        if getattr(plan.settings, name) != ACTIVATIONS[known]:
            return f"The kernels have no `{name}` but {known}."
    received = (problem.dtype, plan.settings.dtype)
    if tensors is not None:
        received += tuple(state.dtype for state in tensors.states)
    dtypes = set(map(keras.backend.standardize_dtype, {*received}))
    if len(dtypes) > 1 or not dtypes <= _DTYPES:
        return (
            "The kernels need float32 or float64 tensors, all of one dtype. "
            f"Received: {', '.join(sorted(dtypes))}."
        )
    if tensors is not None and tensors.sequences.shape[0] == 0:
        return "The batch is empty."
    if not backend.on_cpu():
        return "The kernels run on CPUs only."
    if keras.distribution.distribution() is not None:
        return (
            "XLA cannot partition the kernels over keras.distribution's mesh."
        )
    if backend.is_exported():
        return "Exported programs must run where there are no kernels."
    return backend.native_reason()


def kernels() -> str:
    """The kernels that there are, or why there are none."""
    wrong = backend.native_reason()
    return backend.native_description() if wrong is None else f"none. {wrong}"


def run(problem: Problem) -> Any:
    """`(outputs, final_states, statistics)`, as `forward` gives them."""
    tensors = problem.tensors
    if backend.reads_python():
        return native_forward(problem.plan, *tensors, keep=False)[0]
    run_op = _operation(problem.plan)
    return run_op(*tensors, keep=problem.training, owner=problem.owner)


@functools.cache
def _operation(plan: Plan) -> Any:
    return backend.custom_vjp(
        functools.partial(native_forward, plan),
        functools.partial(native_vjp, plan),
        functools.partial(forward, plan),
        reference_backward=functools.partial(vjp, plan, False),
    )


def native_forward(plan: Plan, *tensors: Any, keep: bool) -> tuple[Any, Any]:
    """`((outputs, final_states, {}), residuals)`, as `forward` gives them."""
    arrays = _arrays(plan.cell, *tensors)
    wanted = {f"final_{name}" for name in _STATES[: plan.cell.states]}
    if plan.return_all_outputs:
        wanted.add("outputs")
    if keep:
        wanted.add("residuals")
    made = _call(plan, arrays, wanted)
    states = tuple(made[f"final_{n}"] for n in _STATES[: plan.cell.states])
    outputs: Any = (made.get("outputs"), states, {})
    return outputs, (tensors, made.get("residuals"))


def native_vjp(plan: Plan, residuals: Any, cotangents: Any) -> tuple[Any, ...]:
    """Gradients of the tensors of `native_forward`."""
    tensors, kept = residuals
    d_outputs, d_states, _ = cotangents
    arrays = _arrays(plan.cell, *tensors)
    constants = ("mask", "zoneout", "starts")
    wanted = {f"d_{name}" for name in arrays if not name.endswith(constants)}
    arrays["residuals"] = kept
    if d_outputs is not None:
        arrays["d_outputs"] = d_outputs
    for name, cotangent in zip(_STATES, d_states, strict=False):
        arrays[f"d_final_{name}"] = cotangent
    names = names_in_kernels(plan.cell)
    made = _call(plan, arrays, wanted)
    return (
        made["d_x"],
        tuple(made[f"d_initial_{n}"] for n in _STATES[: plan.cell.states]),
        {n: made[f"d_{names.get(n, n)}"] for n in tensors[2]},
        None,
        None,
        tensors[-1]
        and tuple(made[f"d_reset_{n}"] for n in _STATES[: plan.cell.states]),
    )


def names_in_kernels(cell: Cell) -> dict[str, str]:
    """The kernels' names of vectors whose site has none: it is "kernel"."""
    return {v.name: f"kernel_{v.name}" for v in cell.vectors if v.site == ""}


def _arrays(
    cell: Cell,
    sequences: Any,
    states: Any,
    weights: Any,
    dropout_masks: Any,
    per_step: Any,
    reset_states: Any,
) -> dict[str, Any]:
    """The arrays that are present, keyed by kernel argument name."""
    mask, _, choices, starts = per_step
    arrays = {"x": sequences, "mask": mask, "starts": starts}
    for name, state in zip(_STATES, reset_states or (), strict=False):
        arrays[f"reset_{name}"] = state
    arrays |= zip(_CHOICES, choices or (), strict=False)
    arrays["input_mask"], arrays["recurrent_mask"] = dropout_masks
    for name, state in zip(_STATES, states, strict=False):
        arrays[f"initial_{name}"] = state
    names = names_in_kernels(cell)
    for name, weight in weights.items():
        arrays[names.get(name, name)] = weight
    return {name: array for name, array in arrays.items() if array is not None}


def _call(plan: Plan, arrays: dict[str, Any], wanted: set[str]) -> Any:
    from keras_ln_kernels import call

    dtype = name_of(arrays["x"].dtype)
    known = call.GRADIENTS if "residuals" in arrays else call.RESULTS
    shares = {
        f"{name}_share": 0.0 if name in arrays else rate
        for name, rate in zip(_CHOICES, plan.zoneout, strict=False)
    }
    return backend.call_native(
        call.Call(
            plan.cell.in_kernels,
            dtype,
            plan.settings.epsilon,
            plan.go_backwards,
            plan.settings.carry_normalized_state,
            tuple(name for name in call.ARGUMENTS if name in arrays),
            tuple(name for name in known if name in wanted),
            **shares,
        ),
        arrays,
    )
