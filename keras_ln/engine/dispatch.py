"""The one entry of recurrences: what runs, and which implementation runs it.

Letters: B batch, T time, D input features, U units.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine import projection
from keras_ln.engine.bind import once_they_fit, plan_of
from keras_ln.engine.cpu import NATIVE
from keras_ln.engine.gpu import CUDA
from keras_ln.engine.implementations import FUSED, LOOP, Implementation
from keras_ln.engine.portable import trace_context
from keras_ln.engine.spec import RunOptions, Spec, Tensors

# In order of preference. CONTRIBUTING.md says how to add one.
IMPLEMENTATIONS: dict[str, Implementation] = {
    "native": NATIVE,
    "cuda": CUDA,
    "fused": FUSED,
    "loop": LOOP,
}


def run(spec: Spec, arrays: Tensors, options: RunOptions) -> Tensors:
    """The cell over time, by the first implementation that can run it.

    Computation and vectors are float64 if any of the arrays is, else float32.

    Args:
        spec: what is computed; its dtypes become those of the arrays.
        arrays: tensors by the names in `ARRAYS` and of the weights. States
            may have one row for all.
        options: see there.

    Returns:
        What `scan.forward` gives, and `last_output` (B, U). It and `outputs`,
        the last one alone (B, 1, U) where no others are asked for, are in the
        dtype of the sequences.

    Raises:
        ValueError: for arrays that do not fit, and where no implementation
            can run them.
    """
    options = options._replace(context=trace_context(arrays))
    plan = plan_of(spec, arrays, options)
    spec = plan.spec
    if plan.casts:
        casts = {n: backend.cast(arrays[n], to) for n, to in plan.casts}
        arrays = arrays | casts
    if plan.unknown and options.context.autodiff_reason is None:
        x = once_they_fit(arrays, plan.unknown, options.owner)
        arrays = arrays | {"x": x}
    if plan.one_row:
        rows = keras.ops.shape(arrays["x"])[0]
        arrays = arrays | {
            name: keras.ops.broadcast_to(arrays[name], (rows, size))
            for name, size in plan.one_row
        }
    if "mask" in arrays:
        # Whatever stands at masked steps is multiplied by zero in the kernel's
        # gradient, and zero times NaN is NaN.
        valid = arrays["mask"][..., None]
        arrays = arrays | {"x": backend.where(valid, arrays["x"], 0.0)}
    name = chosen(spec, arrays, options, plan.refusals)
    run_it = IMPLEMENTATIONS[name].run
    if spec.projection and name != "loop":
        results = projection.run(run_it, spec, arrays, options)
    else:
        if spec.projection and "initial_h" not in arrays:
            shape = keras.ops.shape(arrays["x"])[0], spec.projection
            arrays = arrays | {"initial_h": keras.ops.zeros(shape, spec.dtype)}
        results = run_it(spec, arrays, options)
    last_output = backend.cast(results["final_h"], spec.dtype)
    results["last_output"] = last_output
    if not spec.return_all_outputs:
        results["outputs"] = last_output[:, None]
    zeros = options.zero_output_for_mask or options.zero_before_valid
    if zeros and "mask" in arrays:
        mask = arrays["mask"]
        if spec.go_backwards:
            mask = keras.ops.flip(mask, axis=1)
        if not options.zero_output_for_mask:
            mask = keras.ops.cumsum(keras.ops.cast(mask, "int32"), axis=1) > 0
        last = mask[:, -1:]
        all_steps = (mask if spec.return_all_outputs else last)[..., None]
        for output, valid in (("last_output", last), ("outputs", all_steps)):
            left_out = keras.ops.zeros_like(results[output])
            results[output] = keras.ops.where(valid, results[output], left_out)
    return results


def verdicts(
    spec: Spec,
    arrays: Mapping[str, Any],
    options: RunOptions,
    asked: dict[Any, str | None] | None = None,
) -> Iterator[tuple[str, str | None]]:
    """Each implementation, and why it cannot run in this program, or None.

    Args:
        spec: what is computed.
        arrays: by name; {} before there are any.
        options: with the program.
        asked: gets the answers that are the same for equal shapes and dtypes,
            and is not asked for them again.
    """
    asked = {} if asked is None else asked
    context = options.context
    given, wrong = (spec, arrays), None
    if spec.projection:
        given = projection.unprojected(spec, arrays)
        wrong = projection.reason(spec, arrays)
    for name, row in IMPLEMENTATIONS.items():
        if name == "loop":
            given, wrong = (spec, arrays), None
        if name not in asked:
            asked[name] = wrong or row.reason_without_arrays(spec, options)
        reason = (row.by_hand and context.autodiff_reason) or asked[name]
        if reason is None and row.unavailable is not None:
            reason = row.unavailable(context)
        if reason is None:
            # It has to be available.
            if (name, "arrays") not in asked:
                refusal = row.refusal(name, *given, options)
                asked[name, "arrays"] = refusal
            reason = asked[name, "arrays"]
        yield name, reason


def chosen(
    spec: Spec,
    arrays: Mapping[str, Any],
    options: RunOptions,
    asked: dict[Any, str | None] | None = None,
) -> str:
    """The name of what runs; `ValueError` if nothing can.

    The arguments are those of `verdicts`.
    """
    for name, reason in verdicts(spec, arrays, options, asked):
        if reason is None:
            return name
    anyhow = options._replace(use_fused="auto")
    reasons = dict(verdicts(spec, arrays, anyhow))
    if reasons["loop"] is not None:
        raise ValueError(reasons["loop"])
    raise ValueError(
        f"use_fused=True, but {options.owner} cannot run as one fused op: "
        f'{reasons["fused"]} Use use_fused="auto" to fall back to the cell '
        "loop."
    )


def implementation(layer: Any) -> tuple[str, dict[str, str]]:
    """Which implementation a recurrent layer would run, and why not others.

    - "native": one call of the CPU extension (keras-ln-kernels) per sequence,
      and one for its gradient.
    - "cuda": one launch of a GPU kernel per sequence, and one for its gradient,
      if `python -m keras_ln gpu` found it right and faster on this GPU for the
      units and the batch (which this function does not know), or
      KERAS_LN_KERNELS=cuda forces it.
    - "fused": one op per sequence with a hand-written gradient, which XLA
      compiles on TensorFlow and JAX.
    - "loop": the cell's step over time, differentiated by the framework.

    `use_fused`, `unroll`, activations and overridden methods of the layer
    decide, `portable()`, whether torch.compile reads the program, and forward
    mode. Inside a `tf.autodiff.ForwardAccumulator`, `torch.func.jvp` or
    `jacfwd` the answer is "loop"; on TensorFlow, layers whose tensors the
    accumulator does not follow run as they do elsewhere. JAX does not tell its
    forward mode, which needs `use_fused=False`.

    Args:
        layer: a recurrent layer of keras_ln, built or not.

    Returns:
        `(name, {other: reason})`: the name, and why each of the others is not
        chosen.

    Raises:
        ValueError: if the layer is another one, or nothing can run it as it
            asks for, for example with `use_fused=True` inside `portable()`.

    >>> from keras_ln import LNLSTM, ops
    >>> name, reasons = ops.implementation(LNLSTM(4, activation="relu"))
    >>> name, reasons["loop"]
    ('fused', 'fused is preferred.')
    >>> name, reasons = ops.implementation(LNLSTM(4, unroll=True))
    >>> print(name, "because", reasons["fused"])
    loop because unroll=True asks for an unrolled loop over time.
    """
    if (reason := _not_ours(layer)) is not None:
        raise ValueError(
            f"Argument `layer` must be a recurrent layer. {reason}"
        )
    spec, options = layer.as_problem()
    options = options._replace(context=trace_context())
    name = chosen(spec, {}, options)
    return name, {
        other: reason or f"{name} is preferred."
        for other, reason in verdicts(spec, {}, options)
        if other != name
    }


def unsupported_reason(layer: Any) -> str | None:
    """Why `layer` cannot run as one fused op per sequence.

    Args:
        layer: a recurrent layer of keras_ln.

    Returns:
        None if it can, else a sentence that says what stands in the way.
    """
    if (reason := _not_ours(layer)) is not None:
        return reason
    spec, options = layer.as_problem()
    options = options._replace(use_fused="auto", context=trace_context())
    return dict(verdicts(spec, {}, options))["fused"]


def _not_ours(layer: Any) -> str | None:
    if hasattr(layer, "as_problem"):
        return None
    return (
        "Only recurrent layers of keras_ln have a fused op. Received: "
        f"{type(layer).__name__}. keras_ln.rnn_summary takes every layer."
    )
