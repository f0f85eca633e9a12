"""A recurrent policy balances a pole whose velocity it does not see, on JAX.

An LNGRU with memory, and the same network whose memory is erased at every step,
learn CartPole from positions only, by advantage actor-critic. The environments
and the network run in one compiled scan.
"""

import functools
import math
from pathlib import Path

from common import ending, files, report, studies

RATE = 0.005
# Updates in a row of the table.
TOGETHER = 20
KINDS = {"with memory": True, "without memory": False}


def ends(updates: int) -> list[int]:
    """The last update of each row."""
    return [*range(TOGETHER, updates, TOGETHER), updates]


def train(memory, seed, updates, environments, steps, units) -> list[float]:
    """The mean steps per episode, a number for every `TOGETHER` updates."""
    import jax
    import jax.numpy as jnp
    import keras
    from cartpole_model import act, loss, start

    import keras_ln

    keras.utils.set_random_seed(seed)
    layer = keras_ln.LNGRU(units)
    layer.build((None, None, 2))
    head = 0.1 * jax.random.normal(jax.random.key(seed), (units, 3))
    weights = {"gru": {v.name: v.value for v in layer.weights}, "head": head}
    optimizer = keras.optimizers.Adam(RATE, clipnorm=1.0)
    optimizer.build([keras.Variable(w) for w in jax.tree.leaves(weights)])
    moments = [v.value for v in optimizer.variables]

    @jax.jit
    def update(weights, moments, carry, key):
        keys, h = jax.random.split(key, steps), carry[-1]
        carry, segment = jax.lax.scan(
            functools.partial(act, weights, memory), carry, keys
        )
        gradients = jax.grad(loss)(weights, memory, h, segment)
        leaves, tree = jax.tree.flatten(weights)
        leaves, moments = optimizer.stateless_apply(
            moments, jax.tree.leaves(gradients), leaves
        )
        ended = segment[-1].sum()
        return jax.tree.unflatten(tree, leaves), moments, carry, ended

    keys = jax.random.split(jax.random.key(seed), updates + environments)
    carry = (
        jax.vmap(start)(keys[updates:]),
        jnp.ones(environments, bool),
        jnp.zeros((environments, units)),
    )
    episodes = []
    for key in keys[:updates]:
        weights, moments, carry, ended = update(weights, moments, carry, key)
        episodes.append(int(ended))
    lengths = []
    for end in ends(updates):
        some = episodes[(end - 1) // TOGETHER * TOGETHER : end]
        taken = len(some) * steps * environments
        lengths.append(taken / sum(some) if any(some) else math.nan)
    return lengths


def draw(lengths: dict[str, list[float]], updates: int, path: Path) -> None:
    """The lengths of episodes over the updates."""
    from common import plotting

    figure, ((axis,),) = plotting.grid(1, 1, (6, 4))
    styles = map(plotting.style_of, ("layer", "none"))
    for (kind, values), style in zip(lengths.items(), styles, strict=True):
        axis.plot(ends(updates), values, label=kind, **style)
    axis.set(xlabel="update", ylabel="steps per episode")
    axis.legend(frameon=False)
    plotting.save(figure, path)


SIZES = {
    "updates": ("updates of the weights", 400, 2),
    "environments": ("carts that move at once", 32, 4),
    "steps": ("steps of every cart between two updates", 64, 8),
    "units": ("size of the LNGRU", 32, 4),
}


def main(argv=None):
    args = studies.parse(__file__, __doc__, SIZES, argv, backend="jax")
    sizes = {name: vars(args)[name] for name in SIZES}
    with studies.folder(args) as folder:
        found = {k: train(has, args.seed, **sizes) for k, has in KINDS.items()}
        curves = [
            {"policy": kind, "updates": end, "steps": value}
            for kind, values in found.items()
            for end, value in zip(ends(args.updates), values, strict=True)
        ]
        files.write_csv(folder / "lengths.csv", curves)
        heading = ["policy", "steps per episode at first", "at the end"]
        rows = [(kind, own[0], own[-1]) for kind, own in found.items()]
        report.show_and_write(folder / "episodes.csv", heading, rows)
        draw(found, args.updates, folder / "figure.png")
    return 0


if __name__ == "__main__":
    ending.execute(main)
