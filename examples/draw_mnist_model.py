"""DRAW, a recurrent variational autoencoder with attention.

Its loss is the bound: `pixel_nll` plus the KL divergence that `Draw` adds.

Gregor et al., "DRAW: A Recurrent Neural Network For Image Generation" (2015);
equation numbers are theirs. Letters: B batch, T glimpses, H height, W width, N
side of a patch, U units, Z latents. Only the LSTMs and dense layers follow a
mixed precision policy; the rest is in float32.
"""

from typing import Any

import keras
from common import recurrent
from keras import layers, ops

import keras_ln


def filterbank(
    parameters: Any, height: int, width: int, size: int
) -> tuple[Any, Any, Any]:
    """A grid of N x N Gaussian filters on an image, eq. 19 to 26.

    Args:
        parameters: (B, 5), centre x and y, then the logarithms of variance,
            stride and intensity.
        height, width, size: H, W and N, which is at least 2.

    Returns:
        Filters (B, N, H) and (B, N, W), whose rows sum to 1, and the
        intensity (B, 1).
    """
    x, y, log_variance, log_stride, log_gamma = ops.split(parameters, 5, axis=1)
    stride = (max(height, width) - 1) / (size - 1) * ops.exp(log_stride)
    # Pixels and filters count from 1, so that 0 is the middle of the image.
    steps = ops.arange(1, size + 1, dtype="float32") - size / 2 - 0.5  # (N,)

    def along(centre, length):
        mean = (length + 1) / 2 * (centre + 1) + steps * stride  # (B, N)
        pixels = ops.arange(1, length + 1, dtype="float32")
        distance = pixels - mean[:, :, None]  # (B, N, length)
        # A softmax divides by Z, but never by zero.
        variance = ops.exp(log_variance)[:, :, None]
        return ops.softmax(-0.5 * distance * distance / variance, axis=-1)

    return along(y, height), along(x, width), ops.exp(log_gamma)


def read(image: Any, filters: tuple[Any, Any, Any]) -> Any:
    """The patch (B, N * N) that the filters see of (B, H, W), eq. 27."""
    rows, columns, gamma = filters
    patch = rows @ image @ ops.swapaxes(columns, 1, 2)
    return gamma * ops.reshape(patch, (-1, patch.shape[1] * patch.shape[2]))


def write(patch: Any, filters: tuple[Any, Any, Any]) -> Any:
    """An image (B, H, W) with the patch (B, N * N) painted on it, eq. 29."""
    rows, columns, gamma = filters
    size = rows.shape[1]
    patch = ops.reshape(patch / gamma, (-1, size, size))
    return ops.swapaxes(rows, 1, 2) @ patch @ columns


def divergence(mean: Any, log_deviation: Any) -> Any:
    """KL(N(mean, deviation^2) || N(0, 1)) in nats, summed to (B, 1), eq. 11."""
    variance = ops.exp(2 * log_deviation)
    terms = mean * mean + variance - 2 * log_deviation - 1
    return 0.5 * ops.sum(terms, axis=-1, keepdims=True)


def lstm_cell(
    norm: str,
    units: int,
    gain: float | None = None,
    forget_steps: int | None = None,
    **kwargs: Any,
) -> keras.Layer:
    """The LSTM of both networks; `layer` is the paper's eq. 29 to 31."""
    if norm == "weight":
        kwargs |= recurrent.biases(keras_ln.WNLSTMCell, units, forget_steps)
        return keras_ln.WNLSTMCell(units, **kwargs)
    if norm == "layer":
        kwargs["normalize"] = ("state",)
    return recurrent.layer(
        keras_ln.LNLSTMCell, norm, units, gain, forget_steps, **kwargs
    )


class DrawCell(layers.Layer):
    """One glimpse: read, encode, draw a latent, decode, write (eq. 3 to 8).

    Its input is the noise (B, Z), its output the divergence (B, 1). Its states
    are the canvas (B, H * W), in logits, h and c of the encoder, h and c of
    the decoder (B, U), and the image (B, H * W), which stays as it is.
    """

    def __init__(
        self,
        norm: str,
        units: int,
        latent: int,
        height: int,
        width: int,
        read_size: int,
        write_size: int,
        gain: float | None,
        forget_steps: int | None,
        policy: str,
    ):
        super().__init__(dtype="float32")
        self.shape = height, width
        self.read_size, self.write_size = read_size, write_size
        pixels = height * width
        self.state_size = [pixels, units, units, units, units, pixels]
        self.output_size = 1
        kind = (norm, units, gain, forget_steps)
        self.encoder = lstm_cell(*kind, dtype=policy)
        self.decoder = lstm_cell(*kind, dtype=policy)
        self.mean = layers.Dense(latent, dtype=policy)
        self.log_deviation = layers.Dense(latent, dtype=policy)
        self.read_attention = layers.Dense(5, dtype="float32")
        self.write_attention = layers.Dense(5, dtype="float32")
        self.patch = layers.Dense(write_size**2, dtype=policy)

    def build(self, input_shape):
        batch, latent = input_shape
        units = self.state_size[1]
        self.encoder.build((batch, 2 * self.read_size**2 + units))
        self.decoder.build((batch, latent))
        for layer in (self.mean, self.log_deviation):
            layer.build((batch, units))
        for layer in (self.read_attention, self.write_attention, self.patch):
            layer.build((batch, units))

    def call(self, noise, states):
        if keras.backend.backend() != "jax":
            return self._glimpse(noise, states)
        import jax

        # Computed again for the gradient instead of stored: on a CPU that takes
        # 0.6 of the time of a training step with 28 x 28 pixels.
        return jax.checkpoint(self._glimpse)(noise, states)

    def _glimpse(self, noise, states):
        canvas, *encoder, h, c, image = states
        seen = self.look(image, canvas, h)
        _, encoder = self.encoder(ops.concatenate([seen, h], 1), encoder)
        encoder = [_float32(state) for state in encoder]
        mean = _float32(self.mean(encoder[0]))
        log_deviation = _float32(self.log_deviation(encoder[0]))
        latent = mean + ops.exp(log_deviation) * noise
        canvas, h, c = self.paint(latent, canvas, h, c)
        output = divergence(mean, log_deviation)
        return output, [canvas, *encoder, h, c, image]

    def look(self, image, canvas, h):
        """Reads patches of the image and of the error image, eq. 27."""
        filters = self._filters(self.read_attention(h), self.read_size)
        missing = image - ops.sigmoid(canvas)
        views = (ops.reshape(x, (-1, *self.shape)) for x in (image, missing))
        return ops.concatenate([read(view, filters) for view in views], 1)

    def paint(self, latent, canvas, h, c):
        """Decodes and writes: the next canvas, h and c, eq. 7 and 8."""
        _, states = self.decoder(latent, [h, c])
        h, c = (_float32(state) for state in states)
        filters = self._filters(self.write_attention(h), self.write_size)
        addition = write(_float32(self.patch(h)), filters)
        return canvas + ops.reshape(addition, ops.shape(canvas)), h, c

    def _filters(self, parameters, size):
        return filterbank(parameters, *self.shape, size)


def _float32(x):
    return ops.cast(x, "float32")


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class Draw(layers.Layer):
    """Images (B, H * W) to the logits of their reconstruction (B, H * W).

    The divergence of all glimpses (eq. 10), the mean over the batch, is added
    to the loss; an `Autoencoder` reports it, too.
    """

    def __init__(self, glimpses: int, seed: int, name=None, **config: Any):
        super().__init__(dtype="float32", name=name)
        self.glimpses = glimpses
        self.seed_generator = keras.random.SeedGenerator(seed)
        # The inner layers' policy, kept for a process with another policy.
        usual = {"policy": keras.config.dtype_policy().name}
        usual |= {"gain": None, "forget_steps": None}
        self.config = {"glimpses": glimpses, "seed": seed, **usual, **config}
        self.cell = DrawCell(**usual | config)
        self.rnn = layers.RNN(
            self.cell, return_sequences=True, return_state=True, dtype="float32"
        )

    def build(self, input_shape):
        latent = self.config["latent"]
        self.rnn.build((input_shape[0], self.glimpses, latent))

    def compute_output_shape(self, input_shape):
        return input_shape

    def call(self, images):
        shape = (ops.shape(images)[0], self.glimpses, self.config["latent"])
        noise = keras.random.normal(shape, seed=self.seed_generator)
        canvas, kl = self.reconstruct(images, noise)
        self.add_loss(ops.mean(kl))
        return canvas

    def reconstruct(self, images, noise):
        """The canvas (B, H * W) and divergence (B,) for noise (B, T, Z)."""
        zeros = [
            ops.zeros((ops.shape(images)[0], size))
            for size in self.cell.state_size[:-1]
        ]
        kl, canvas, *_ = self.rnn(noise, initial_state=[*zeros, images])
        return canvas, ops.sum(kl, axis=(1, 2))

    def generate(self, noise):
        """Canvases (B, T, H, W), as probabilities, of latents (B, T, Z)."""
        count = noise.shape[0]
        canvas, _, _, h, c, _ = (
            ops.zeros((count, size)) for size in self.cell.state_size
        )
        canvases = []
        for glimpse in range(noise.shape[1]):
            canvas, h, c = self.cell.paint(noise[:, glimpse], canvas, h, c)
            canvases.append(ops.sigmoid(canvas))
        return ops.reshape(
            ops.stack(canvases, axis=1), (count, -1, *self.cell.shape)
        )

    def get_config(self):
        return self.config | {"name": self.name}


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class Autoencoder(keras.Model):
    """A model with a `Draw`, whose divergence is also the metric "kl"."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kl = keras.metrics.Mean(name="kl")

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        # Not in the layer's call, in which Keras on JAX has no metrics.
        self.kl.update_state(sum(self.losses))
        return super().compute_loss(x, y, y_pred, sample_weight, training)


@keras.saving.register_keras_serializable(package="keras_ln_examples")
def pixel_nll(images, logits):
    """-log p(images | logits) of Bernoulli pixels, summed to (B,), eq. 9."""
    return ops.sum(ops.softplus(logits) - images * logits, axis=-1)


def build_model(
    norm: str = "layer",
    units: int = 256,
    height: int = 28,
    width: int = 28,
    glimpses: int = 64,
    latent: int = 100,
    read_size: int = 2,
    write_size: int = 5,
    gain: float | None = None,
    seed: int = 0,
    forget_steps: int | None = None,
) -> keras.Model:
    """Builds the autoencoder: flat images of height x width to logits."""
    draw = Draw(name="draw", **locals())  # All arguments are its own, too.
    inputs = keras.Input((height * width,))
    return Autoencoder(inputs, draw(inputs))
