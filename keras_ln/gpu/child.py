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


def _trial() -> Any:
    name = keras.backend.backend()
    return importlib.import_module(f"keras_ln.backend.{name}.trial")


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
    return {"facts": facts, "reasons": reasons, "format": _trial().format_now()}


def _solved(problem: dict[str, Any]) -> dict[str, Any]:
    from keras_ln_kernels import gpu

    trial, opened = _trial(), gpu.gpu()
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
    rng, gain = np.random.default_rng(1), problem.get("gain", 1.0)
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

    def of(how: str = "", **more: Any) -> Any:
        layer = _layer(problem, x.shape, **more)
        run = trial.program(layer, x, options, cotangent, how)
        return lambda: [trial.numbers(a) for a in run()]

    right = of(dtype="float64", use_fused=False)()
    print("alive", flush=True)
    smallest = 1e-6 * max(np.linalg.norm(a) for a in right)

    def error(found: Any) -> float:
        pairs = zip(found, right, strict=True)
        return max(
            float(np.linalg.norm(a - b) / max(np.linalg.norm(b), smallest))
            for a, b in pairs
        )

    os.environ[native.SWITCH] = "0"
    other = error(of()())
    os.environ[native.SWITCH] = "cuda"
    run = of(problem.get("how", ""))
    first = run()
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

    def seconds(batch: int, steps: int) -> float:
        x = np.ones((batch, steps, 64))
        shape = (batch, steps, problem["units"])
        run = trial.program(layer, x, {}, np.ones(shape) if training else None)
        run()
        print("alive", flush=True)  # It compiled; several do for a problem.
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
        return 1e6 * min(taken)

    def fitted(batch: int) -> tuple[float, float]:
        short, long = (seconds(batch, n) for n in problem["lengths"])
        few, many = problem["lengths"]
        step = max((long - short) / (many - few), 0.0)
        return step, max(short - few * step, 0.0)

    os.environ[native.SWITCH] = "cuda"
    answer: dict[str, Any] = {"us": fitted(rows)}
    os.environ[native.SWITCH] = "0"
    points = [(rows, *fitted(rows))]
    call, steps = points[0][2], problem["lengths"][1]
    for many in problem["rows"][1:]:
        took = seconds(many * rows, steps)
        points.append((many * rows, max(took - call, 0.0) / steps, call))
    other = keras_ln.ops.implementation(layer)[0]
    return answer | {"other": other, "other_us": points}


if __name__ == "__main__":
    main(sys.argv[-1])
