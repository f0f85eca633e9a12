"""Random layers and functions: their arguments, arrays and calls."""

import json
import zlib

import numpy as np

# B, T, D, U; few, because XLA compiles each.
SIZES = [
    [3, 4, 2, 3],
    [2, 5, 3, 8],
    [5, 3, 4, 17],
    [4, 1, 3, 2],
    [18, 3, 5, 20],
]
GATES = {"LNSimpleRNN": 1, "LNGRU": 3, "LNLSTM": 4, "WNLSTM": 4, "BNLSTM": 4}
OPS = ("ln_simple_rnn", "ln_gru", "ln_lstm", "wn_lstm", "bn_lstm")
OPS = dict(zip(GATES, OPS, strict=True))
SITES = {"LNSimpleRNN": [""], "LNGRU": ["kernel", "recurrent"], "WNLSTM": []}
SITES["BNLSTM"] = SITES["LNLSTM"] = ["kernel", "recurrent", "state"]
SUMMED = (["sum", "state"], ["sum"])
NORMS = ("LayerNormalization", "BatchNormalization", "RecurrentBatchNorm")
NORMS += ("WeightNormDense", "WeightNormalization", "layer_normalization")
KINDS = ("layer",) * 8 + ("op",) * 6 + ("step", "cell", "rnn", "norm", "norm")
YES_OR_NO = (True, False)
EPSILONS = (1e-6, 1e-5, 1e-3, 0.5)
GATED = "LNGRU LNLSTM WNLSTM BNLSTM"
LSTMS = "LNLSTM WNLSTM BNLSTM"
# Kinds ("" for all that recur), names (likewise), how often it is given.
ARGUMENTS = {
    "activation": ("", "", 0.4, ("tanh", "sigmoid", "relu", "linear", "elu")),
    "recurrent_activation": ("", GATED, 0.3, ("sigmoid", "tanh", "relu")),
    "epsilon": ("", "LNSimpleRNN LNGRU LNLSTM BNLSTM", 0.7, EPSILONS),
    "groups": ("", "LNGRU LNLSTM", 0.4, ("gate", "all", "paper")),
    "zoneout": ("", "", 0.25, (0.25, 0.5)),
    "cell_zoneout": ("", LSTMS, 0.25, (0.25, 0.5)),
    "use_fused": ("layer op", "", 1, ("auto", "auto", True, False)),
    "unroll": ("layer op", "", 0.08, (True,)),
    "zero_output_for_mask": ("layer op", "", 0.3, (True,)),
    "go_backwards": ("layer op rnn", "", 0.3, (True,)),
    "return_all_outputs": ("op", "", 1, YES_OR_NO),
    "training": ("op", "", 0.5, YES_OR_NO),
    "learn": ("op", "BNLSTM", 1, YES_OR_NO),
    "carry_normalized_state": ("", "LNLSTM", 0.15, (True,)),
    "use_bias": ("layer cell rnn", "", 0.2, (False,)),
    "center": ("layer cell rnn", "LNGRU LNLSTM", 0.3, (False,)),
    "max_steps": ("layer cell rnn", "BNLSTM", 1, (2, 4, 7)),
    "momentum": ("layer cell rnn", "BNLSTM", 0.5, (0.5,)),
    "dropout": ("layer cell rnn", "", 0.12, (0.4,)),
    "recurrent_dropout": ("layer cell rnn", "", 0.12, (0.4,)),
    "return_sequences": ("layer rnn", "", 0.5, (True,)),
    "return_state": ("layer rnn", "", 0.5, (True,)),
    "stateful": ("layer", "", 0.06, (True,)),
}
ARGUMENTS_OF_NORMS = {
    "epsilon": ("", " ".join(n for n in NORMS if "W" not in n), 0.8, EPSILONS),
    "axis": ("", "LayerNormalization layer_normalization", 1, (-1, 1, [1, -1])),
    "center": ("", " ".join(NORMS[:3]), 0.3, (False,)),
    "scale": ("", " ".join(NORMS[:3]), 0.3, (False,)),
    "momentum": ("", " ".join(NORMS[1:3]), 0.5, (0.0, 0.5)),
    "unbiased": ("", " ".join(NORMS[1:3]), 0.2, (True,)),
    "max_steps": ("", NORMS[2], 1, (2, 7)),
    "sequence_wise": ("", NORMS[2], 0.5, (True,)),
    "units": ("", " ".join(NORMS[3:5]), 1, (4,)),
    "activation": ("", NORMS[3], 0.7, ("tanh", "relu")),
}
# Arrays beside x: where, of which names, how often.
ARRAYS = {
    "states": ("", "", 0.7),
    "mask": ("layer op", "", 0.5),
    "reset": ("layer op", "LNSimpleRNN LNGRU LNLSTM WNLSTM", 0.3),
    "reset_state": ("layer op", "LNSimpleRNN LNGRU LNLSTM WNLSTM", 0.15),
    "input_mask": ("op step", "", 0.25),
    "recurrent_mask": ("op step", "", 0.25),
    "zoneout": ("op step", "", 0.25),
    "cell_zoneout": ("op step", LSTMS, 0.25),
    "first_step": ("layer op", "BNLSTM", 0.4),
}
CONSTANTS = ("mask", "reset", "input_mask", "recurrent_mask", "first_step")
CONSTANTS += ("zoneout", "cell_zoneout")
# The rest of a plan: of ten twelfths float64 and float32.
OF_RNN = ("go_backwards", "return_sequences", "return_state")
DTYPES = ("float64",) * 8 + ("float32",) * 2 + ("mixed_float16", "bfloat16")
BAD = ("x", "states", "mask", "reset", "weights", "unknown")


def plan(seed):
    """A random layer or function, its arguments, and which arrays it gets."""
    rng = np.random.default_rng(seed)

    def one(values):
        return values[rng.integers(len(values))]

    def fitting(table):
        return {
            name: one(row[3]) if row[3:] else None
            for name, row in table.items()
            if kind in (row[0] or kind).split()
            and of in (row[1] or of).split()
            and rng.random() < row[2]
        }

    def some(values):
        every = rng.random() < 0.6
        return [value for value in values if every or one(YES_OR_NO)]

    kind, found = one(KINDS), {"sizes": one(SIZES)}
    of = one(NORMS if kind == "norm" else list(GATES))
    kind = "op" if (kind, of) == ("step", "BNLSTM") else kind  # there is none
    found |= {"kind": kind, "of": of, "dtype": one(DTYPES)}
    found["arguments"] = fitting(
        ARGUMENTS_OF_NORMS if kind == "norm" else ARGUMENTS
    )
    found["arrays"] = [] if kind == "norm" else list(fitting(ARRAYS))
    if kind == "norm" and "Batch" in of:
        found["arrays"] = some(["mask"])
    if "reset" not in found["arrays"] and rng.random() < 0.9:
        found["arrays"] = [n for n in found["arrays"] if n != "reset_state"]
    found["sites"] = some(SITES.get(of, []))
    if of == "LNLSTM" and rng.random() < 0.2:
        found["sites"] = one(SUMMED)
    found["vectors"] = some(["bias", "recurrent_bias"][: 1 + (of == "LNGRU")])
    found["one_row"] = one(YES_OR_NO)
    found["centered"] = one((True, True, False))
    found["training"] = one(YES_OR_NO)
    found["portable"] = one(YES_OR_NO) if rng.random() < 0.07 else None
    found["compiled"] = bool(rng.random() < 0.25)
    found["bad"] = one(BAD) if rng.random() < 0.03 else None
    return found


def draw(path, count, seed, values):
    """Writes `count` configurations, every plan with `values` seeds."""
    plans = [plan([seed, number]) for number in range(-(-count // values))]
    found = [plans[n // values] | {"seed": n} for n in range(count)]
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")


class Values:
    """The arrays of one configuration, each with a seed of its own."""

    def __init__(self, config):
        self.config, self.seed = config, config["seed"]
        self.batch, self.steps, self.features, self.units = config["sizes"]
        self.dtype = config["dtype"].removeprefix("mixed_")
        self.kept = "float32" if "mixed" in config["dtype"] else self.dtype

    def random(self, name):
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def number(self, name, shape):
        """Of few bits: rounding them to float16 changes none."""
        values = np.round(16 * self.random(name).normal(size=tuple(shape))) / 16
        kind = name.split("_")[-1]
        if kind == "variance":
            return np.abs(values) + 0.25
        return 1 + values / 4 if kind in ("gamma", "g") else values

    def chosen(self, name, shape, share=0.6):
        return self.random(name).random(shape) < share

    def states(self, name):
        count = 2 if "LSTM" in self.config["of"] else 1
        one_row = name == "reset_state" and self.config["one_row"]
        rows = 1 if one_row else self.batch
        width = self.units + (self.config["bad"] == "states")
        return {
            f"{name}{k}": self.number(f"{name}{k}", (rows, width))
            for k in range(count)
        }

    def x(self):
        shape = self.config["sizes"][:3]
        if self.config["kind"] in ("step", "cell"):
            shape = [self.batch, self.features]
        shape = shape[1:] if self.config["bad"] == "x" else shape
        return self.number("x", shape)

    def constant(self, name):
        """A mask, choices or a number, without a gradient."""
        time = (self.batch, self.steps + (self.config["bad"] == name))
        if name == "first_step":
            return np.asarray((0, 1, 3, 9)[self.seed % 4], "int32")
        if name == "reset":
            return self.chosen(name, time, 0.35)
        if name == "mask":
            mask = self.chosen(name, time)
            kinds = mask, np.sort(mask), np.sort(mask)[:, ::-1], mask[:, :1]
            return np.broadcast_to(kinds[self.seed % 4], time).copy()
        if "zoneout" in name:
            step = self.config["kind"] == "step"
            return self.chosen(
                name, (*(time[:1] if step else time), self.units)
            )
        size = self.features if name == "input_mask" else self.units
        return 2.0 * self.chosen(name, (self.batch, size))

    def weights(self):
        """Those of a function."""
        of, found = self.config["of"], {}
        columns = GATES[of] * self.units
        found["kernel"] = (
            self.features,
            columns + (self.config["bad"] == "weights"),
        )
        found["recurrent_kernel"] = self.units, columns
        if of == "WNLSTM":
            found |= {"kernel_g": (columns,), "recurrent_g": (columns,)}
        found |= dict.fromkeys(self.config["vectors"], (columns,))
        for site in self.config["sites"]:
            size = (self.units if site == "state" else columns,)
            name = site and f"{site}_"
            found[f"{name}gamma"] = size
            if self.config["centered"] and (of != "BNLSTM" or site == "state"):
                found[f"{name}beta"] = size
            if of == "BNLSTM":
                moving = (f"{name}moving_mean", f"{name}moving_variance")
                found |= dict.fromkeys(moving, (3, *size))
        return {name: self.number(name, shape) for name, shape in found.items()}


def layer_of(config, values):
    """The layer of a configuration, with random weights; None of a function."""
    import keras

    import keras_ln

    kind, of, policy = config["kind"], config["of"], {"dtype": config["dtype"]}
    arguments = dict(config["arguments"])
    if kind in ("op", "step") or of == "layer_normalization":
        return None
    if config["bad"] == "unknown":
        arguments["unheard_of"] = 1
    if kind != "norm":
        arguments |= {"units": values.units, "seed": 7}
    if of in ("LNGRU", "LNLSTM", "BNLSTM"):
        arguments["normalize"] = config["sites"]
    if of == "WeightNormalization":
        arguments = {"layer": keras.layers.Dense(4, **policy)}
    if kind in ("rnn", "cell"):
        of_rnn = [n for n in arguments if n in OF_RNN]
        of_rnn = {n: arguments.pop(n) for n in of_rnn}
        layer = getattr(keras_ln, f"{of}Cell")(**arguments, **policy)
        if kind == "rnn":
            layer = keras.layers.RNN(layer, **of_rnn, **policy)
    else:
        layer = getattr(keras_ln, of)(**arguments, **policy)
    layer.build(values.x().shape)
    for number, variable in enumerate(layer.weights):
        if "float" in variable.dtype:
            name = f"{number} {variable.name}"
            variable.assign(values.number(name, variable.shape))
    return layer


def problem_of(config):
    """A call of tensors by name, the arrays, the constants, and the layer."""
    import keras

    from keras_ln import ops

    kind, of, values = config["kind"], config["of"], Values(config)
    layer, x = layer_of(config, values), {"x": values.x()}
    axes = np.atleast_1d(config["arguments"].get("axis", -1))
    weights = {}
    if layer is None:
        shape = [x["x"].shape[axis] for axis in axes]
        weights = {n: values.number(n, shape) for n in ("gamma", "beta")}
        weights = weights if kind == "norm" else values.weights()
    constants = {n: w for n, w in weights.items() if "moving" in n}
    names = list(config["arrays"])
    if kind == "cell" and "states" not in names:
        names.append("states")
    states = {}
    for name in names:
        if "state" in name:
            states |= values.states(name)
        else:
            constants[name] = values.constant(name)
    options = {} if layer else dict(config["arguments"])
    if layer and layer._call_has_training_arg:
        options["training"] = config["training"]
    if layer is None and config["bad"] == "unknown":
        options["unheard_of"] = 1

    def call(tensors):
        named = {n: tensors[n] for n in names if n in tensors} | options
        for name in ("states", "reset_state"):
            if name in names:
                found = [t for n, t in tensors.items() if n[:-1] == name]
                named[name] = found
        given = named.pop("states", None)
        if kind in ("cell", "rnn") and given:
            # Counts of steps and the like.
            given += layer.get_initial_state(values.batch)[len(given) :]
        if kind == "cell":
            return layer(tensors["x"], given, **named)
        if layer:
            named |= {"initial_state": given} if given else {}
            return layer(tensors["x"], **named)
        tensors = {n: tensors[n] for n in ("x", *weights)}
        if kind == "norm":
            return ops.layer_normalization(*tensors.values(), **named)
        function = getattr(ops, OPS[of] + "_step" * (kind == "step"))
        return function(tensors.pop("x"), given, tensors, **named)

    arrays = (
        x | states | {n: w for n, w in weights.items() if n not in constants}
    )
    dtypes = dict.fromkeys(weights, values.kept)

    def tensor(name, array):
        is_float = array.dtype == "float64"
        dtype = dtypes.get(name, values.dtype) if is_float else array.dtype
        return keras.ops.convert_to_tensor(array, str(dtype))

    arrays, constants = (
        {n: tensor(n, a) for n, a in some.items()}
        for some in (arrays, constants)
    )
    return call, arrays, constants, layer
