"""The frameworks' transformations of functions, through ops and layers."""

import os

import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND
from descriptors import BY_NAME, SEQUENCE_LAYERS, B, D, T
from recurrence import MASKS, layer_of, randomize
from scripts import run_python
from tolerances import FLOAT64

import keras_ln

pytestmark = pytest.mark.every_backend

RNG = np.random.default_rng(5)
X = RNG.normal(size=(B, T, D))


def loss_of(layer):
    """A function of weights and x, to be differentiated, and the weights."""
    others = [v.value for v in layer.non_trainable_variables]

    def loss(weights, x):
        y, _ = layer.stateless_call(weights, others, x)
        return (y**3).sum()

    return loss, [v.value for v in layer.trainable_variables]


def same(found, right):
    """Fail unless two lists of tensors are equal, and not zero."""
    for a, b in zip(found, right, strict=True):
        a, b = (
            np.asarray(x.detach() if hasattr(x, "detach") else x)
            for x in (a, b)
        )
        assert abs(b).max() > 1e-3
        close(a, b, **FLOAT64)


if BACKEND == "torch":
    import torch
    from torch.func import grad, jacrev, vmap

    LAYERS = ["LayerNormalization", *map(str, SEQUENCE_LAYERS)]

    @pytest.mark.parametrize("name", LAYERS)
    def test_gradients_of_each_example(name):
        """vmap of grad: right ones add up to the gradient of the batch."""
        loss, weights = loss_of(layer_of(name))
        x = torch.tensor(X)
        each = vmap(grad(loss), (None, 0))(weights, x[:, None])
        right = torch.autograd.grad(loss(weights, x), weights)
        same([g.sum(0) for g in each], right)

    @pytest.mark.parametrize("name", LAYERS)
    def test_jacobians(name):
        layer, x = layer_of(name), torch.tensor(X)
        right = torch.autograd.functional.jacobian(layer, x)
        batched = torch.autograd.functional.jacobian(layer, x, vectorize=True)
        same([jacrev(layer)(x), batched], [right, right])

    @pytest.mark.parametrize("name", LAYERS)
    def test_gradient_of_vmap_and_of_a_gradient(name):
        layer = layer_of(name)
        x = torch.tensor(np.stack([X, 0.5 * X], axis=1))

        def loss(x):
            return (vmap(layer, in_dims=1, out_dims=1)(x) ** 3).sum()

        def penalty(x):
            return (grad(loss)(x) ** 2).sum()

        def plain(x):
            halves = [layer(x[:, k]) for k in (0, 1)]
            return sum((y**3).sum() for y in halves)

        ordinary = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(
            plain(ordinary), ordinary, create_graph=True
        )
        (second,) = torch.autograd.grad((first**2).sum(), ordinary)
        same([grad(loss)(x), grad(penalty)(x)], [first, second])

    @pytest.mark.parametrize(
        ("name", "mask", "compiler"),
        [
            ("LayerNormalization", None, "eager"),
            ("LayerNormalization", None, "aot_eager"),
            ("LNSimpleRNN", "left", "eager"),
            # The compiler writes out every step.
            pytest.param("LNLSTM", "left", "aot_eager", marks=pytest.mark.full),
            pytest.param("BNLSTM", None, "eager", marks=pytest.mark.full),
        ],
    )
    # Of Keras' own caches (3.15), which the compiler ignores.
    @pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functoo")
    def test_compiles_as_one_graph(name, mask, compiler):
        torch.compiler.reset()
        layer, options = layer_of(name), {}
        if mask is not None:
            options["mask"] = torch.tensor(MASKS[mask])
        compiled = torch.compile(layer, fullgraph=True, backend=compiler)
        results = []
        for function in (compiled, layer):
            x = torch.tensor(X, requires_grad=True)
            y = function(x, **options)
            results.append([y, *torch.autograd.grad((y**3).sum(), x)])
        same(*results)

    @pytest.mark.full
    @pytest.mark.parametrize("name", ["BNLSTM", "RecurrentBatchNorm"])
    @pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functoo")
    def test_statistics_move_in_one_graph(name):
        torch.compiler.reset()
        layer, twin = (BY_NAME[name].make(dtype="float64") for _ in range(2))
        layer.build(X.shape), twin.build(X.shape)
        twin.set_weights(randomize(layer).get_weights())
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        for steps in (T, T - 1):
            x = torch.tensor(X[:, :steps])
            compiled(x, training=True), twin(x, training=True)
            same(layer.non_trainable_weights, twin.non_trainable_weights)

    @pytest.mark.parametrize("steps", [1, T])
    @pytest.mark.parametrize("name", [*map(str, SEQUENCE_LAYERS)])
    def test_outputs_changed_in_place(name, steps):
        """As by `y += x` and torch.nn.ReLU(inplace=True)."""
        layer = layer_of(name, return_sequences=True, return_state=True)
        results = []
        for in_place in (True, False):
            x = torch.tensor(X[:, :steps], requires_grad=True)
            made = layer(x)
            changed = [y.mul_(2.0) if in_place else 2.0 * y for y in made]
            loss = sum((y**3).sum() for y in changed)
            results.append(torch.autograd.grad(loss, x))
        same(*results)

    def test_sparse_cotangents():
        """torch.nn.functional.embedding sends them."""
        table = torch.tensor(RNG.normal(size=(5, 4)), requires_grad=True)
        layer = keras_ln.LayerNormalization(dtype="float64")
        rows = torch.tensor([1, 3, 3])
        cotangent = torch.tensor(RNG.normal(size=(3, 4)))
        found, right = (
            torch.autograd.grad((lookup * cotangent).sum(), table)
            for lookup in (
                torch.nn.functional.embedding(rows, layer(table), sparse=True),
                layer(table)[rows],
            )
        )
        same(found, right)

    @pytest.mark.parametrize("strict", [False, True])
    def test_torch_export(strict):
        for name in ("LayerNormalization", "LNSimpleRNN"):
            layer, x = layer_of(name), torch.tensor(X)
            program = torch.export.export(layer, (x,), strict=strict)
            same([program.module()(2.0 * x)], [layer(2.0 * x)])

    def test_autocast():
        """Where torch rounds on the way, gradients still are of the weights."""
        layer = BY_NAME["LNLSTM"].make(units=8)
        x = torch.tensor(X, dtype=torch.float32)
        results = []
        layer(x)
        for enabled in (True, False):
            with torch.autocast("cpu", torch.float16, enabled=enabled):
                y = layer(x)
            weights = [v.value for v in layer.trainable_variables]
            results.append([y, *torch.autograd.grad((y**3).sum(), weights)])
        for found, right in zip(*results, strict=True):
            assert found.dtype == right.dtype == torch.float32
            error = torch.linalg.norm(found - right)
            assert error < 0.02 * torch.linalg.norm(right) + 1e-6

elif BACKEND == "jax":
    import jax

    @pytest.mark.parametrize("name", ["LayerNormalization", "LNLSTM"])
    def test_gradients_of_each_example(name):
        """vmap of grad: right ones add up to the gradient of the batch."""
        loss, weights = loss_of(layer_of(name))
        gradient = jax.grad(loss)
        each = jax.jit(jax.vmap(gradient, (None, 0)))(weights, X[:, None])
        same([g.sum(0) for g in each], jax.jit(gradient)(weights, X))

    def test_checkpointed_in_a_loop():
        loss, weights = loss_of(layer_of("LNLSTM"))
        gradient = jax.grad(jax.checkpoint(loss), 1)
        rows = jax.lax.map(lambda x: gradient(weights, x[None])[0], X)
        same([rows], [jax.jit(jax.grad(loss, 1))(weights, X)])

    # Devices have to be there before JAX starts: a process of its own.
    SHARDED = """
import jax, numpy as np
from engine.test_transformations import X, layer_of, loss_of, same
assert len(jax.devices()) == 2
automatic = jax.sharding.AxisType.Auto
mesh = jax.make_mesh((2,), ("data",), axis_types=(automatic,))
everywhere, data = jax.P(), jax.P("data")
x = np.concatenate([X, 0.5 * X[:1]])
for name, options in (
    ("LayerNormalization", {}),
    ("LNLSTM", {"use_fused": True}),
    ("LNGRU", {"use_fused": False}),
    ("BNLSTM", {}),
):
    loss, weights = loss_of(layer_of(name, **options))

    def penalty(*args):
        return (jax.grad(loss, 1)(*args) ** 2).sum()

    for function in (loss, penalty):
        gradient = jax.grad(function, (0, 1))
        both = jax.jit(jax.shard_map(
            gradient,
            mesh=mesh,
            in_specs=(everywhere, data),
            out_specs=(everywhere, data),
        ))(weights, x)
        right = jax.jit(gradient)(weights, x)
        same(jax.tree.leaves(both), jax.tree.leaves(right))
    # The default of jax.make_mesh: types tell how arrays are spread.
    explicit = jax.make_mesh(
        (2,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,)
    )
    gradient = jax.grad(loss, (0, 1))
    right = jax.jit(gradient)(weights, x)
    with jax.sharding.set_mesh(explicit):
        rows = jax.device_put(x, jax.sharding.NamedSharding(explicit, data))
        both = jax.jit(gradient)(weights, rows)
    same(jax.tree.leaves(both), jax.tree.leaves(right))
"""

    @pytest.mark.full
    def test_shard_map_and_explicit_mesh():
        """With its check of types, the default: gradients of weights add up."""
        flags = "--xla_force_host_platform_device_count=2"
        flags = f"{os.environ['XLA_FLAGS']} {flags}"
        done = run_python("-c", SHARDED, XLA_FLAGS=flags)
        assert done.returncode == 0, done.stderr

elif BACKEND == "tensorflow":
    import tensorflow as tf

    def right_and_found(name, derivative):
        """Of the ordinary operations, and of the layer as it is."""
        layer = layer_of(name)
        with keras_ln.ops.portable():
            right = derivative(layer, in_turn)
        return right, derivative(layer, tf.vectorized_map)

    def in_turn(function, rows):
        return tf.stack([function(row) for row in tf.unstack(rows)])

    def gradients_through(layer, mapped):
        """The mapped layer's; what it computes is vectorised or not."""
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = mapped(lambda row: layer(row[None])[0], x)
            loss = tf.reduce_sum(y**3)
        return tape.gradient(loss, [x, *layer.trainable_weights])

    @pytest.mark.promise("on TensorFlow graph rewrites")
    @pytest.mark.parametrize(
        "name",
        [
            *("LayerNormalization", "LNSimpleRNN"),
            *[
                pytest.param(str(row), marks=pytest.mark.full)
                for row in SEQUENCE_LAYERS
                if str(row) != "LNSimpleRNN"
            ],
        ],
    )
    def test_gradients_through_vectorized_map(name):
        same(*right_and_found(name, gradients_through)[::-1])

    def gradients_of_jacobian(layer, mapped):
        x = tf.constant(X)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = layer(x)
            vectorised = mapped is tf.vectorized_map
            jacobian = tape.batch_jacobian(
                y, x, experimental_use_pfor=vectorised
            )
            loss = tf.reduce_sum(jacobian**3)
        return outer.gradient(loss, [x, layer.trainable_weights[0]])

    @pytest.mark.promise("on TensorFlow graph rewrites")
    @pytest.mark.parametrize(
        "name",
        [
            "LayerNormalization",
            pytest.param("LNSimpleRNN", marks=pytest.mark.full),
            pytest.param("LNLSTM", marks=pytest.mark.full),
        ],
    )
    def test_gradients_of_jacobians(name):
        same(*right_and_found(name, gradients_of_jacobian)[::-1])

    @pytest.mark.parametrize(
        "name",
        ["LayerNormalization", pytest.param("LNLSTM", marks=pytest.mark.full)],
    )
    def test_a_saved_model_is_differentiated(name, tmp_path):
        """As the layer is, once and twice."""
        module = tf.Module()
        module.layer = layer_of(name)
        module.call = tf.function(
            module.layer, input_signature=[tf.TensorSpec(X.shape, tf.float64)]
        )
        tf.saved_model.save(module, str(tmp_path))

        def derivatives(function):
            x = tf.constant(X)
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    loss = tf.reduce_sum(function(x) ** 3)
                first = tape.gradient(loss, x)
                penalty = tf.reduce_sum(first**3)
            return [first, outer.gradient(penalty, x)]

        loaded = tf.saved_model.load(str(tmp_path))
        with keras_ln.ops.portable():
            right = derivatives(module.layer)
        same(derivatives(loaded.call), right)
