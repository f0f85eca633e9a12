"""Problems for GPU kernels, and what is computed around a launch.

`emulation` is an `emulated.Emulation`, or what has its method `launch`.
"""

from typing import NamedTuple

import numpy as np
from problems import cast, check_gradients, check_values, draw

from keras_ln_kernels import CELLS, gpu_plan


class Case(NamedTuple):
    """Units, blocks, chunks in registers, format, cluster; rows and steps.

    Last the rows of a group.
    """

    units: int
    blocks: int
    kept: int
    format: str
    cluster: bool
    batch: int
    steps: int
    rows: int = 8

    def plan(self, cell, backward=False):
        return gpu_plan.planned(cell, backward, *self[:5], self.rows)


CASES = {
    "units and rows that fill nothing": Case(
        *(50, 2, 99, "3xtf32", True), 11, 5
    ),
    "one row, one step, one block": Case(5, 1, 99, "3xtf32", True, 1, 1),
    "half of R in shared memory": Case(50, 2, 1, "3xtf32", True, 3, 3),
    "through global memory": Case(61, 4, 99, "tf32", False, 9, 4),
    "split, through global memory": Case(50, 4, 99, "3xtf32", False, 11, 4),
    "three blocks of 16 units": Case(37, 3, 99, "bfloat16", True, 3, 4),
    "three blocks, some units": Case(24, 3, 99, "float16", True, 3, 4),
    "TF32": Case(64, 2, 2, "tf32", True, 8, 4),
    "16 rows, and one more": Case(50, 2, 2, "3xtf32", True, 17, 5, 16),
    "16 rows through global memory": Case(37, 3, 99, "tf32", False, 9, 4, 16),
    "16 rows, three blocks": Case(24, 3, 99, "bfloat16", True, 16, 4, 16),
    "16 rows, six warps": Case(70, 3, 1, "float16", True, 16, 3, 16),
}
SMALL = Case(20, 1, 5, "3xtf32", True, 3, 4)
ALONE = Case(1, 1, 99, "3xtf32", True, 2, 3)
LARGE = Case(256, 8, 8, "tf32", True, 8, 2)
# Relative errors of a few steps; 3xtf32 is a float32.
TOLERANCES = {"3xtf32": 5e-6, "tf32": 4e-3, "float16": 4e-3, "bfloat16": 3e-2}
SITES = ("recurrent_gamma", "recurrent_bias", "state_gamma", "state_beta")
INSTANCES = [
    case.plan(cell, backward)
    for case in (*CASES.values(), SMALL, ALONE, LARGE)
    for cell in gpu_plan.CELLS
    for backward in (False, True)
]


def segments(cell, units):
    """What has statistics of its own among the gates."""
    if cell == "lstm":
        return [slice(0, 4 * units)]
    return [slice(0, 2 * units), slice(2 * units, 3 * units)]


def arguments(drawn):
    """A problem whose x W is x, as a kernel takes it.

    Rows of R are centred in float32, as a framework may do it, and are zeros
    where they have no variance: then neither has h R.
    """
    w, options = drawn.weights, drawn.options
    made = {"zx": drawn.x}
    made["recurrent"] = w["recurrent_kernel"].astype("float32")
    units = len(made["recurrent"])
    names = ("recurrent_gamma", "recurrent_bias", "state_gamma", "state_beta")
    made |= {name: w.get(name) for name in names}
    if made["recurrent_gamma"] is not None:
        for part in segments(drawn.cell, units):
            rows = made["recurrent"][:, part]
            mean = rows.mean(1, keepdims=True)
            centred = rows - mean
            deviation = np.sqrt((centred**2).mean(1, keepdims=True))
            constant = deviation <= 16 * 2.0**-24 * np.abs(mean)
            made["recurrent"][:, part] = np.where(constant, 0.0, centred)
    for name, state in zip(CELLS[drawn.cell].states, drawn.states, strict=True):
        made[f"initial_{name}"] = state
        made[f"reset_{name}"] = options.get(f"reset_{name}")
    if "mask" in options or "starts" in options:
        batch, steps, _ = drawn.x.shape
        kept = options.get("mask", np.ones((batch, steps), bool))
        anew = options.get("starts", np.zeros((batch, steps), bool))
        made["flags"] = (~kept + 2 * anew).astype("u1")
    return {k: a for k, a in cast(made, "float32").items() if a is not None}


def nothing(*shape):
    return np.full(shape, np.nan, "float32")


def forward(emulation, plan, drawn, training=True, **options):
    """Results by name, in training with what backward reads."""
    given = arguments(drawn)
    batch, steps, wide = given["zx"].shape
    units, lstm = plan.units, drawn.cell == "lstm"
    made = {"h": nothing(batch, steps, units), "final_h": nothing(batch, units)}
    if lstm:
        made["final_c"] = nothing(batch, units)
    if training:
        made["from_h"] = nothing(batch, steps, wide)
        made["norms"] = nothing(batch, steps, 3 if lstm else 2)
        if lstm:
            made["c"] = nothing(batch, steps, units)
    elif options.pop("last", False):
        del made["h"]
    backwards = drawn.options.get("go_backwards", False)
    emulation.launch(
        plan, given | made, batch, steps, go_backwards=backwards, **options
    )
    return made


def scales(cell, made):
    """Those of h R, one for each segment: (B, T, s)."""
    return made["norms"][..., : 1 if cell == "lstm" else 2]


def backward(emulation, plan, drawn, made, **options):
    """All gradients by name: the kernel's, and what follows from them."""
    given = arguments(drawn)
    cell, units = drawn.cell, plan.units
    batch, steps, wide = given["zx"].shape
    parts = segments(cell, units)
    scale = scales(cell, made)
    r, gamma = given["recurrent"], given.get("recurrent_gamma")
    normal = [
        made["from_h"][..., part] * scale[..., i : i + 1]
        for i, part in enumerate(parts)
    ]
    if gamma is not None:
        back = [
            n @ r[:, part].T / n.shape[-1]
            for n, part in zip(normal, parts, strict=True)
        ]
        given["back"] = np.ascontiguousarray(np.concatenate(back, -1))
    states = CELLS[cell].states
    given |= {"d_h": cast(drawn.d_outputs, "float32")}
    finals = zip(states, cast(drawn.d_states, "float32"), strict=True)
    given |= {f"d_final_{name}": d for name, d in finals}
    found = {"d_zx": nothing(batch, steps, wide)}
    names = [f"d_initial_{name}" for name in states]
    names += [f"d_reset_{name}" for name in states]
    names += ["d_state_gamma", "d_state_beta"] if cell == "lstm" else []
    found |= {name: nothing(batch, units) for name in names}
    if cell == "gru":
        found["d_shown"] = nothing(batch, steps, units)
    backwards = drawn.options.get("go_backwards", False)
    kept = {
        name: made[name]
        for name in ("h", "c", "from_h", "norms")
        if name in made
    }
    emulation.launch(
        plan,
        given | kept | found,
        batch,
        steps,
        go_backwards=backwards,
        **options,
    )
    return found | outside(drawn, made, found, normal, scale)


def outside(drawn, made, found, normal, scale):
    """The gradients that follow for all steps at once, in float64."""
    cell, w, options = drawn.cell, drawn.weights, drawn.options
    units = len(w["recurrent_kernel"])
    order = slice(None, None, -1 if options.get("go_backwards") else 1)
    dz = found["d_zx"][:, order].astype("float64")
    if cell == "gru":
        dz[..., 2 * units :] = found["d_shown"]
    before = np.concatenate([drawn.states[0][:, None], made["h"][:, :-1]], 1)
    if "starts" in options:
        fresh = np.broadcast_to(
            options.get("reset_h", 0.0), made["final_h"].shape
        )
        anew = options["starts"][:, order, None]
        before = np.where(anew, fresh[:, None], before)
    gamma, d_from = w.get("recurrent_gamma"), dz.copy()
    all_normal = np.concatenate(normal, -1)
    if gamma is not None:
        for i, part in enumerate(segments(cell, units)):
            e, n = dz[..., part] * gamma[part], normal[i]
            mean, product = (v.mean(-1, keepdims=True) for v in (e, e * n))
            d_from[..., part] = scale[..., i : i + 1] * (e - mean - n * product)
    sums = {
        "d_x": found["d_zx"],
        "d_recurrent_kernel": np.einsum("btu,btn->un", before, d_from),
        "d_recurrent_gamma": (dz * all_normal).sum((0, 1)),
        "d_recurrent_bias": dz.sum((0, 1)),
    }
    if cell == "lstm":
        names = ("d_state_gamma", "d_state_beta")
        sums |= {name: found[name].sum(0) for name in names}
    return sums


def drawn_of(cell, case, vectors=SITES, **options):
    """A problem whose x W is x."""
    wide = {"lstm": 4, "gru": 3}[cell] * case.units
    sizes = (case.batch, case.steps, wide, case.units)
    drawn = draw(cell, sizes, vectors, **options)
    del drawn.weights["kernel"]
    drawn.weights["recurrent_kernel"] += 0.05  # which the norms take away
    return drawn


def results(emulation, cell, case, drawn):
    """Values and gradients by name."""
    made = forward(emulation, case.plan(cell), drawn)
    found = backward(emulation, case.plan(cell, True), drawn, made)
    return made | {"outputs": made["h"]} | found


def check(emulation, cell, case, drawn):
    """Compares values and gradients with the reference."""
    found = results(emulation, cell, case, drawn)
    tolerance = TOLERANCES[case.format]
    check_values(drawn, found, tolerance, "float32")
    check_gradients(drawn, found, tolerance, "float32")
