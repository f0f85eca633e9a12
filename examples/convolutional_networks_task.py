"""Data and training of `convolutional_networks.py`."""

from argparse import Namespace
from pathlib import Path

import convolutional_networks_model
import keras
from common import classifiers, training
from common.datasets import cifar10, mnist


def load_data(args: Namespace) -> mnist.Digits:
    """Loads the pictures, a few of them for --smoke."""
    of_mnist = args.data == "embedded" or mnist.is_folder(Path(args.data))
    if args.data == "tfds":
        of_mnist = args.data_set in mnist.SOURCES
    if of_mnist:
        data = mnist.load(args, args.data_set or "mnist")
        data = data._replace(
            train_images=data.train_images[..., None],
            test_images=data.test_images[..., None],
        )
    else:
        data = cifar10.load(args)
    data = classifiers.some(args, data)
    return data.first(512, 128) if args.smoke else data


def make_task(args: Namespace, data: mnist.Digits) -> training.Task:
    """Compiles the model; pixels get mean 0 and deviation 1."""
    mean, deviation = data.train_images.mean(), data.train_images.std()
    return classifiers.make_task(
        args,
        data,
        lambda images: (images - mean) / deviation,
        lambda shape: convolutional_networks_model.build_model(
            args.norm, args.units, shape, gain=args.gain
        ),
        keras.optimizers.Adam(args.learning_rate),
        xla=False,
    )


PROCEDURE = classifiers.procedure(load_data, make_task, log=True)
