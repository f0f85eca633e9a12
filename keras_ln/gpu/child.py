"""The child process that solves problems on the GPU; it may hang or crash."""

import importlib
import json
import os
import sys
import time
from typing import Any

import keras
import numpy as np

import keras_ln
from keras_ln.backend import native, verdicts

# By format: the policy, the largest error, its largest multiple of the other
# implementation's error, and the bits of an operand.
FORMATS = {
    "tf32": ("float32", 1e-2, 3, 11),
    "3xtf32": ("float32", 1e-4, 20, 24),
    "bfloat16": ("mixed_bfloat16", 6e-2, 3, 8),
    "float16": ("mixed_float16", 1e-2, 3, 11),
}


def main(text: str) -> None:
    """Prints a line of JSON for each problem of a list in JSON."""
    for problem in json.loads(text):
        try:
            answer = _solved(problem) if "layer" in problem else _described()
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            if not any(s in words.lower() for s in ("out of mem", "exhausted")):
                raise
            answer = {"memory": words[:200]}
        print(json.dumps({"keras_ln": answer}), flush=True)


def _of_backend(part: str) -> Any:
    name = keras.backend.backend()
    return importlib.import_module(f"keras_ln.backend.{name}.{part}")


def _described() -> dict[str, Any]:
    """The facts of each GPU, or why the kernels run on none."""
    from keras_ln_kernels import gpu

    wrong = gpu.unsupported_reason()
    if wrong is not None:
        return {"reason": wrong}
    reasons = [gpu.gpu().reason(d) for d in range(gpu.gpu().devices)]
    facts = [
        None if wrong else verdicts.facts_of(device)
        for device, wrong in enumerate(reasons)
    ]
    now = _of_backend("gpu").format_of("float32")
    return {"facts": facts, "reasons": reasons, "format": now}


def _solved(problem: dict[str, Any]) -> dict[str, Any]:
    from keras_ln_kernels import gpu

    trial, opened = _of_backend("trial"), gpu.gpu()
    trial.use_format(problem["format"])
    rows = opened.devices and 1 << 30
    for backward in (False, True):
        plan = opened.plan(
            *(problem["cell"], backward, problem["units"]),
            *(problem["format"], 0),
        )
        if isinstance(plan, str):
            return {"left out": plan}
        rows = min(rows, opened.at_once(plan, 0))
    if "times" in problem:
        return {"rows": rows, **_timed(trial, problem, rows)}
    batch, steps = problem["shape"]
    return _compared(trial, problem, batch if batch > 0 else rows + 1, steps)


def _layer(problem: dict[str, Any], shape: Any, **more: Any) -> Any:
    options = {"dtype": FORMATS[problem["format"]][0], **more}
    options["go_backwards"] = problem.get("backwards", False)
    layer = getattr(keras_ln, problem["layer"])
    layer = layer(problem["units"], return_sequences=True, **options)
    layer.build(shape)
    # With gains of one, an LSTM of 40 units amplifies rounding twentyfold.
    rng, gain = np.random.default_rng(1), problem.get("gain", 0.5)
    values = []
    for weight in layer.weights:
        drawn = rng.normal(size=weight.shape)
        if len(weight.shape) > 1:
            values.append(gain * drawn / np.sqrt(weight.shape[0]))
        else:
            gamma = weight.name.endswith("gamma")
            values.append(gain * (gamma + 0.3 * drawn))
    layer.set_weights(values)
    return layer


def _program(trial: Any, switch: str, *arguments: Any) -> Any:
    """A program of `trial`, by the GPU kernels ("cuda") or without ("0")."""
    os.environ[native.SWITCH] = switch
    run = trial.program(*arguments)

    def switched() -> Any:
        os.environ[native.SWITCH] = switch
        found = run()
        print("alive", flush=True)  # Its first call may have compiled.
        return found

    return switched


def _compared(
    trial: Any, problem: dict[str, Any], batch: int, steps: int
) -> dict[str, Any]:
    """The error relative to the loop in float64."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(batch, steps, 24))
    cotangent = rng.normal(size=(batch, steps, problem["units"]))
    options = {
        name: rng.random((batch, steps)) < share
        for name, share in (("mask", 0.8), ("reset", 0.2))
        if problem.get(name)
    }

    def of(switch: str, how: str = "", **more: Any) -> Any:
        layer = _layer(problem, x.shape, **more)
        run = _program(trial, switch, layer, x, options, cotangent, how)
        return lambda: [trial.numbers(a) for a in run()]

    # All are made before one runs: JAX compiles them at once.
    loop = of("0", dtype="float64", use_fused=False)
    fused, run = of("0"), of("cuda", problem.get("how", ""))
    right = loop()
    smallest = 1e-6 * max(np.linalg.norm(a) for a in right)

    def error(found: Any) -> float:
        pairs = zip(found, right, strict=True)
        return max(
            float(np.linalg.norm(a - b) / max(np.linalg.norm(b), smallest))
            for a, b in pairs
        )

    other, first = error(fused()), run()
    _, most, times, bits = FORMATS[problem["format"]]
    answer = {"error": error(first), "other_error": other}
    answer["limit"] = min(most, times * max(other, 2.0**-bits))
    for _ in range(problem.get("repeats", 1)):
        again = zip(run(), first, strict=True)
        if not all(np.array_equal(a, b, equal_nan=True) for a, b in again):
            answer["error"] = float("inf")  # Not the same bits.
    return answer


def _timed(trial: Any, problem: dict[str, Any], rows: int) -> dict[str, Any]:
    """Microseconds of a step, and of a call, for both implementations."""
    training = problem["times"] == "training"
    layer = _layer(problem, (None, None, 64))

    def made(switch: str, batch: int, steps: int) -> Any:
        x = np.ones((batch, steps, 64))
        shape = (batch, steps, problem["units"])
        cotangent = np.ones(shape) if training else None
        return _program(trial, switch, layer, x, {}, cotangent)

    ours, (few, many) = problem["lengths"]
    more = [n * rows for n in problem["rows"][1:]]
    keys = [("cuda", rows, n) for n in ours]
    keys += [("0", rows, few), *(("0", n, many) for n in (rows, *more))]
    programs = {key: made(*key) for key in keys}
    for run in programs.values():
        run()
    taken = {key: _microseconds(run) for key, run in programs.items()}

    def fitted(switch: str, lengths: Any) -> tuple[float, float]:
        short, long = (taken[switch, rows, n] for n in lengths)
        step = max((long - short) / (lengths[1] - lengths[0]), 0.0)
        return step, max(short - lengths[0] * step, 0.0)

    step, call = fitted("0", (few, many))
    points = [(rows, step, call)]
    for n in more:
        points.append((n, max(taken["0", n, many] - call, 0.0) / many, call))
    answer = {"us": fitted("cuda", ours), "other_us": points}
    os.environ[native.SWITCH] = "0"
    return answer | {"other": keras_ln.ops.implementation(layer)[0]}


def _microseconds(run: Any) -> float:
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return 1e6 * min(taken)


if __name__ == "__main__":
    main(sys.argv[-1])
