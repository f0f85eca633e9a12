"""CartPole in JAX, a recurrent policy for it, and the policy's loss."""

import jax
import jax.numpy as jnp

import keras_ln

# Of the environment, as in Barto, Sutton and Anderson (1983).
LONGEST = 200


def start(key):
    """Position, speed, angle, spin, and the number of steps so far."""
    state = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
    return jnp.append(state, 0.0)


def cart_pole(state, action, key):
    """The next state, a new one after an end, and whether one has ended."""
    _, speed, angle, spin, _ = state
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    push = (20.0 * action - 10.0 + 0.05 * spin**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (2 / 3 - 0.05 / 1.1 * cos**2)
    pull = push - 0.05 / 1.1 * turn * cos
    state += jnp.stack([0.02 * speed, 0.02 * pull, 0.02 * spin, 0.02 * turn, 1])
    position, _, angle, _, count = state
    done = (abs(position) > 2.4) | (abs(angle) > 0.21) | (count >= LONGEST)
    return jnp.where(done, start(key), state), done


def observed(states):
    """The position and the angle; the policy does not see velocities."""
    return states[:, :4:2] * jnp.array([1.0, 10.0])


def heads(weights, h):
    """Logits of the two actions, and the value."""
    both = h @ weights["head"]
    return both[..., :2], both[..., 2]


def act(weights, memory, carry, key):
    """One step in all environments: a step of `jax.lax.scan`."""
    states, first, h = carry
    x = observed(states)
    h = jnp.where(first[:, None] | (not memory), 0.0, h)
    h, _ = keras_ln.ops.ln_gru_step(x, h, weights["gru"])
    key, *keys = jax.random.split(key, 1 + len(x))
    action = jax.random.categorical(key, heads(weights, h)[0])
    states, done = jax.vmap(cart_pole)(states, action, jnp.stack(keys))
    return (states, done, h), (x, first, action, done)


def loss(weights, memory, h, segment):
    """Of advantage actor-critic, with generalised advantage estimation.

    A step that does not end its episode has a reward of 0.05, which keeps
    values of order one.
    """
    x, first, action, done = (part.swapaxes(0, 1) for part in segment)
    reset = first | (not memory)
    _, h, _ = keras_ln.ops.ln_gru(x, h, weights["gru"], reset=reset)
    logits, values = heads(weights, h)
    logits, action = jax.nn.log_softmax(logits[:, :-1]), action[:, :-1]
    goes_on = 1.0 - done[:, :-1]
    fixed = jax.lax.stop_gradient(values)
    errors = goes_on * (0.05 + 0.99 * fixed[:, 1:]) - fixed[:, :-1]

    def backwards(later, row):
        error, goes_on = row
        advantage = error + 0.99 * 0.95 * goes_on * later
        return advantage, advantage

    _, advantage = jax.lax.scan(
        backwards, jnp.zeros(len(x)), (errors.T, goes_on.T), reverse=True
    )
    advantage = advantage.T
    wrong = (values[:, :-1] - fixed[:, :-1] - advantage) ** 2
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    chosen = jnp.take_along_axis(logits, action[..., None], axis=-1)[..., 0]
    entropy = -(jnp.exp(logits) * logits).sum(axis=-1)
    return (0.5 * wrong - chosen * advantage - 0.01 * entropy).mean()
