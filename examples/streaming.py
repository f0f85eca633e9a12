"""A recurrent net takes noise out of sound, frame by frame, from a file.

python examples/streaming.py needs the extra `examples` and a minute. It trains
on tones in noise, exports the net with its states as inputs and outputs (LiteRT
from TensorFlow, torch.export from torch, jax.export from JAX), runs the file on
frames of 10 ms and draws streaming.png: noisy, clean and denoised sound.
"""

import argparse
import pathlib
import time

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_ln

RATE = 16_000
FRAME = RATE // 100  # 10 ms


def make_sounds(count, frames, seed):
    """Noisy and clean sounds (count, frames, FRAME): three tones each."""
    rng = np.random.default_rng(seed)
    seconds = np.arange(frames * FRAME) / RATE
    shape = (count, 3, 1)
    pitch = rng.uniform(100, 1000, shape) * seconds
    beat = rng.uniform(0.5, 4, shape) * seconds
    phase, start = rng.uniform(0, 2 * np.pi, (2, *shape))
    loudness = 0.5 + 0.5 * np.sin(2 * np.pi * beat + start)
    clean = (loudness * np.sin(2 * np.pi * pitch + phase)).sum(axis=1)
    noisy = clean + rng.normal(size=clean.shape)
    return [
        x.reshape(count, frames, FRAME).astype("float32")
        for x in (noisy, clean)
    ]


def build_model(layer_class=keras_ln.LNLSTM):
    """Each frame passes one recurrent layer."""
    model = keras.Sequential(
        [
            keras.Input((None, FRAME)),
            keras.layers.Dense(96, activation="tanh"),
            layer_class(128, return_sequences=True, name="memory"),
            keras.layers.Dense(FRAME),
        ]
    )
    model.compile(keras.optimizers.Adam(0.002, global_clipnorm=1.0), "mse")
    return model


def export(stream, folder):
    """Writes the file; returns it and `step(arrays)`, which runs it."""
    specs = [
        keras.InputSpec(shape=(1, *x.shape[1:]), dtype="float32", name=x.name)
        for x in stream.inputs
    ]
    zeros = [np.zeros(spec.shape, "float32") for spec in specs]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        path = folder / "streaming.tflite"
        stream.export(
            path, format="litert", input_signature=[specs], verbose=False
        )
        run = tf.lite.Interpreter(str(path)).get_signature_runner()
        names = [spec.name for spec in specs]

        def step(arrays):
            made = run(**dict(zip(names, arrays, strict=True)))
            return [made[f"output_{k}"] for k in range(len(made))]

    elif keras.backend.backend() == "torch":
        import torch

        path = folder / "streaming.pt2"
        tensors = [torch.from_numpy(x) for x in zeros]
        torch.export.save(torch.export.export(stream.eval(), (tensors,)), path)
        program = torch.export.load(path).module()

        @torch.no_grad()
        def step(arrays):
            tensors = [torch.from_numpy(x) for x in arrays]
            return [y.numpy() for y in program(tensors)]

    else:
        import jax

        path = folder / "streaming.jax"
        call = jax.jit(lambda arrays: stream(arrays, training=False))
        path.write_bytes(jax.export.export(call)(zeros).serialize())
        program = jax.export.deserialize(bytearray(path.read_bytes()))
        call = jax.jit(program.call)

        def step(arrays):
            return [np.asarray(y) for y in call(arrays)]

    return path, step


def main(argv=None):
    """Train, export, run frame by frame, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--epochs", type=int, default=6, help="of training (default: 6)")
    add("--frames", type=int, default=1000, help="to run (default: 1000)")
    add("--folder", default=".", help="where the files go (default: here)")
    args = parser.parse_args(argv)
    for name in ("epochs", "frames"):
        if (given := getattr(args, name)) < 1:
            parser.error(f"--{name}: expected at least 1, received {given}")
    folder = pathlib.Path(args.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--folder: {error}")

    keras.utils.set_random_seed(0)
    model = build_model()
    sounds = make_sounds(2000, 25, seed=0)
    model.fit(*sounds, batch_size=16, epochs=args.epochs, verbose=2)
    stream = keras_ln.with_states(model)
    path, step = export(stream, folder)
    print(f"{path.name} has {path.stat().st_size / 1024:.0f} KiB.")

    noisy, clean = make_sounds(1, args.frames, seed=1)
    states = [np.zeros((1, x.shape[1]), "float32") for x in stream.inputs[1:]]
    frames, milliseconds = [], []
    for t in range(args.frames):
        start = time.perf_counter()
        y, *states = step([noisy[:, t : t + 1], *states])
        milliseconds.append(1000 * (time.perf_counter() - start))
        frames.append(y)
    denoised = np.concatenate(frames, axis=1)
    power = np.mean(clean**2)
    for name, x in {"noisy": noisy, "denoised": denoised}.items():
        decibels = 10 * np.log10(power / np.mean((x - clean) ** 2))
        print(f"{name}: signal to noise {decibels:.1f} dB")
    mean, p99 = np.mean(milliseconds), np.percentile(milliseconds, 99)
    print(f"A frame of 10 ms takes {mean:.3f} ms (mean), {p99:.3f} ms (p99).")

    middle = slice(noisy.size // 2, noisy.size // 2 + 480)
    plt.plot(noisy.ravel()[middle], color="0.8", label="noisy")
    plt.plot(clean.ravel()[middle], label="clean")
    plt.plot(denoised.ravel()[middle], label="denoised")
    plt.xlabel("sample (16 a millisecond)")
    plt.legend()
    plt.savefig(folder / "streaming.png", dpi=150)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
