"""An LSTM and a layer-normalised LSTM learn to read digits, row by row.

python examples/quick_start.py needs the extra `examples` and a minute. It draws
quick_start.png: both models' error on held-out images over the epochs.
"""

import argparse
import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import keras_ln


def load_data():
    """1,797 images of 8 x 8, as sequences of 8 rows of 8 pixels."""
    digits = load_digits()
    images = (digits.images / 16).astype("float32")
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:1400], order[1400:]
    return (
        (images[train], digits.target[train]),
        (images[test], digits.target[test]),
    )


def build_model(layer_class):
    """A recurrent layer reads the rows, a dense layer names the digit."""
    model = keras.Sequential(
        [keras.Input((8, 8)), layer_class(64), keras.layers.Dense(10)]
    )
    model.compile(
        keras.optimizers.Adam(0.003, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )
    return model


def main(argv=None):
    """Train both models and draw their test errors."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--epochs", type=int, default=20, help="epochs (default: 20)")
    add("--figure", default="quick_start.png", help="path of the plot")
    args = parser.parse_args(argv)
    if args.epochs < 1:
        parser.error(f"--epochs: expected at least 1, received {args.epochs}")
    figure = pathlib.Path(args.figure)
    if figure.suffix not in {".png", ".svg"} or not figure.parent.is_dir():
        parser.error(f"--figure: expected FOLDER/NAME.png, received {figure}")

    train, test = load_data()
    for layer_class in (keras.layers.LSTM, keras_ln.LNLSTM):
        keras.utils.set_random_seed(0)
        model = build_model(layer_class)
        history = model.fit(
            *train,
            batch_size=32,
            epochs=args.epochs,
            validation_data=test,
            verbose=0,
        ).history
        error = 100 * (1 - np.array(history["val_accuracy"]))
        epochs = np.arange(1, args.epochs + 1)
        print(
            f"{layer_class.__name__}: test error {error[-1]:.1f} %, epochs to "
            f"5 %: {min(epochs[error <= 5], default='more')}"
        )
        plt.plot(epochs, error, ".-", label=layer_class.__name__)
    plt.xlabel("epoch")
    plt.ylabel("test error (%)")
    plt.yscale("log")
    plt.legend()
    plt.savefig(args.figure, dpi=150)
    print(f"The curves are in {args.figure}.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
