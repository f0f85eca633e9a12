"""The network that answers a query about a passage by looking it up there.

Hermann et al., "Teaching Machines to Read and Comprehend" (2015), section 3.2,
with the terms that Cooijmans et al., "Recurrent Batch Normalization" (2016),
section 5.4, add. Letters: B batch, T words of a passage, U units.
"""

from typing import Any

import keras
from common import recurrent
from common.flags import uses_batches
from keras import layers, ops

import keras_ln

# Standard deviation of the initial h at the start, and of the noise on it.
START = 0.1

# A score with a weight of 0.
_NOTHING = -1e30

# The matrix products inside a tanh, and those with its bias or shift.
TERMS = ("passage", "query", "found", "query_again", "mean")
SHIFTED = ("query", "query_again")


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class InitialState(layers.Layer):
    """The first h (B, U), learnt and the same for all rows, and c = 0.

    From an h of zero an LSTM with layer normalisation has a gradient of 1 /
    sqrt(epsilon) per step for as long as its state stays zero.
    """

    def __init__(self, units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.h = self.add_weight(
            name="h",
            shape=(self.units,),
            initializer=keras.initializers.RandomNormal(stddev=START),
        )

    def call(self, words):
        """Takes any tensor with B rows."""
        shape = (ops.shape(words)[0], self.units)
        h = ops.broadcast_to(ops.cast(self.h, self.compute_dtype), shape)
        return h, ops.zeros(shape, self.compute_dtype)

    def get_config(self):
        return super().get_config() | {"units": self.units}


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class Attention(layers.Layer):
    """The attention of a query to a passage.

    With passage states d_t, their mean m over the words, and the query's q:

        s_t = w . tanh(W_d d_t + W_q q + b + (B d_t) . (B q))
        a = softmax(s),  r = sum_t a_t d_t
        g = tanh(W_r r + W_g q + W_m m + b_g)

    With `normalize`, every matrix product inside a tanh is batch normalised,
    W_d d_t with one statistic for all words (Cooijmans et al.,
    "BN-everywhere"), and the shift replaces the bias; the number (B d_t) .
    (B q) is not normalised. Padding has weight 0 and does not count in m or in
    statistics. All computations are in float32.

    It is called with d (B, T, U), q (B, U) and a mask (B, T), False for
    padding, and returns g (B, U). `gain` is None for 0.1.
    """

    def __init__(
        self,
        units: int,
        normalize: bool = False,
        gain: float | None = None,
        momentum: float = 0.99,
        **kwargs: Any,
    ):
        super().__init__(**kwargs | {"dtype": "float32"})
        self.config = {"units": units, "normalize": normalize}
        self.config |= {"gain": gain, "momentum": momentum}
        self.terms = {
            name: self._dense(units, name, name in SHIFTED and not normalize)
            for name in TERMS
        }
        # It uses the passage's mask, and its output has no mask.
        self.supports_masking = True
        self.score = self._dense(1, "score")
        self.match = self._dense(units, "match")
        self.norms = {}
        if normalize:
            start = keras.initializers.Constant(0.1 if gain is None else gain)
            self.norms = {
                name: self._norm(name, start, momentum) for name in self.terms
            }

    def _dense(self, units, name, use_bias=False):
        return layers.Dense(
            units, use_bias=use_bias, name=name, dtype="float32"
        )

    def _norm(self, name, start, momentum):
        how = {"momentum": momentum, "gamma_initializer": start}
        how |= {"name": f"{name}_norm", "dtype": "float32"}
        cls = keras_ln.BatchNormalization
        if name == "passage":
            cls = keras_ln.RecurrentBatchNorm
            how["sequence_wise"] = True
        return cls(center=name in SHIFTED, **how)

    def build(self, passage_shape, query_shape):
        # All have U numbers.
        for name, dense in self.terms.items():
            inputs = passage_shape if name == "passage" else query_shape
            dense.build(inputs)
            if name in self.norms:
                self.norms[name].build(inputs)
        self.score.build(query_shape)
        self.match.build(query_shape)

    def call(self, passage, query, mask, training=False):
        weights = self.weights_of(passage, query, mask, training)
        found = ops.sum(weights[..., None] * passage, axis=1)
        counted = ops.cast(mask, passage.dtype)[..., None]
        words = ops.maximum(ops.sum(counted, axis=1), 1)
        mean = ops.sum(counted * passage, axis=1) / words
        return ops.tanh(
            self._term("found", found, training)
            + self._term("query_again", query, training)
            + self._term("mean", mean, training)
        )

    def compute_mask(self, *args):
        return None

    def weights_of(self, passage, query, mask, training=False):
        """The attention a (B, T)."""
        match = self.match(passage) * self.match(query)[:, None]
        hidden = ops.tanh(
            self._term("passage", passage, training, mask=mask)
            + self._term("query", query, training)[:, None]
            + ops.sum(match, axis=-1, keepdims=True)
        )
        scores = self.score(hidden)[..., 0]
        weights = ops.softmax(ops.where(mask, scores, _NOTHING), axis=-1)
        # Otherwise a passage of only padding would have weights.
        return weights * ops.cast(mask, weights.dtype)

    def _term(self, name, x, training, **mask):
        x = self.terms[name](x)
        if name not in self.norms:
            return x
        return self.norms[name](x, training=training, **mask)

    def get_config(self):
        return super().get_config() | self.config


def build_model(
    norm: str = "layer",
    units: int = 240,
    passage_length: int = 300,
    query_length: int = 100,
    vocabulary: int = 120_000,
    dropout: float = 0.5,
    gain: float | None = None,
    momentum: float = 0.99,
    spread: float = 0.01,
    seed: int = 0,
    forget_steps: int | None = None,
) -> keras.Model:
    """Builds the network from passages and queries (word numbers) to logits.

    Args besides the flags of `attentive_reader.py`:
        passage_length: the words of the longest passage.
        query_length: the words of the longest query.
        vocabulary: the number of words and markers, with the padding 0.
    """
    start = recurrent.words(spread)
    embed = layers.Embedding(vocabulary, units, start, name="embedding")
    drop = layers.Dropout(dropout, seed=seed)

    cls, own = keras_ln.LNLSTM, {}
    if uses_batches(norm):
        cls, own = keras_ln.BNLSTM, {"momentum": momentum}
    # A seed for each initial state: equal seeds would give equal noise.
    noise = iter((seed + 2, seed + 3))

    def read(words, name, **kwargs):
        mask = ops.not_equal(words, 0)
        h, c = InitialState(units, name=f"{name}_start")(words)
        if uses_batches(norm):
            # Equal states in a batch would have no variance.
            h = layers.GaussianNoise(START, seed=next(noise))(h)
        kwargs |= {"name": name, "forget_steps": forget_steps, **own}
        layer = recurrent.layer(cls, norm, units, gain, **kwargs)
        # Keras passes no mask on if there is an initial state.
        states = layer(drop(embed(words)), initial_state=[h, c], mask=mask)
        return states, mask

    passage = keras.Input((passage_length,), dtype="int32", name="passage")
    query = keras.Input((query_length,), dtype="int32", name="query")
    states, mask = read(passage, "read_passage", return_sequences=True)
    question, _ = read(query, "read_query")
    found = Attention(
        units, norm == "batch-everywhere", gain, momentum, name="attention"
    )(states, question, mask=mask)
    found = layers.Dropout(dropout, seed=seed + 1)(found)
    answer = layers.Dense(vocabulary, dtype="float32", name="answer")
    return keras.Model([passage, query], answer(found))
