"""Files that are cut off, damaged, of another model, or hostile."""

import hashlib
import io
import json
import pathlib
import zipfile

import keras
import numpy as np
import pytest
from common.backup import Backup
from common.errors import InputError
from descriptors import LAYERS, randomize

ROWS = {row.name: row for row in LAYERS}
RECURRENT = [row for row in LAYERS if row.is_recurrent]


def model_of(row, **arguments):
    inputs = keras.Input(row.input_shape[1:])
    return keras.Model(inputs, row.make(**arguments)(inputs))


def weights_of(model):
    return [keras.ops.convert_to_numpy(v).copy() for v in model.weights]


@pytest.fixture(scope="module")
def backup(tmp_path_factory):
    """The content of the backup of one epoch."""
    path = tmp_path_factory.mktemp("backup") / "backup.npz"
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    backup = [Backup(path)]
    model.fit(np.ones((4, 3)), np.ones((4, 4)), verbose=0, callbacks=backup)
    return path.read_bytes()


@pytest.mark.promise("a backup is cut off, or has flipped bits")
def test_a_damaged_backup_is_refused(backup, tmp_path):
    whole, path = backup, tmp_path / "backup.npz"
    path.write_bytes(whole)
    assert Backup(path).epoch == 1
    rng = np.random.default_rng(5)
    damaged = [whole[:size] for size in range(0, len(whole), 97)]
    for position in rng.integers(len(whole), size=200):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << rng.integers(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(
            InputError, match="backup.npz cannot be read .*remove the folder"
        ):
            Backup(path)


class Payload:
    """Pickled; touches a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


@pytest.mark.promise("a backup is cut off, or has flipped bits")
def test_a_pickle_in_a_backup_is_not_opened(tmp_path):
    marker, path = tmp_path / "marker", tmp_path / "backup.npz"
    array = np.empty(1, object)
    array[0] = Payload(marker)
    content = io.BytesIO()
    np.savez(content, state=array)
    content.seek(0)
    with np.load(content, allow_pickle=True) as file:
        assert file["state"].shape == (1,)
    assert marker.exists()  # It would have worked.
    marker.unlink()
    content = content.getvalue()
    for digest in (b"", hashlib.sha256(content).digest()):
        path.write_bytes(digest + content)
        with pytest.raises(InputError, match="backup.npz cannot be read"):
            Backup(path)
    assert not marker.exists()


@pytest.mark.promise("a backup is cut off, or has flipped bits")
def test_a_backup_of_another_run_changes_nothing(tmp_path):
    """Neither weights nor attributes."""
    path = tmp_path / "backup.npz"
    x, y = np.ones((4, 3)), np.ones((4, 4))
    plateau = keras.callbacks.ReduceLROnPlateau("loss")

    def dense(units=4, dtype="float32"):
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(units, dtype=dtype)]
        )
        model.compile("adam", "mse")
        return model

    def load(model, *callbacks):
        saver = Backup(path, callbacks)
        saver.set_model(model)
        saver._load_model()

    model = dense()
    model.fit(x, y, verbose=0, callbacks=[plateau, Backup(path, [plateau])])
    attributes, right = {**vars(plateau)}, weights_of(model)
    plateau.wait = attributes["wait"] + 5
    for message, other, callbacks in (
        ("belongs to a different model", dense(5), [plateau]),
        ("belongs to a different model", dense(dtype="float64"), [plateau]),
        ("has the state of another run", dense(), []),
        ("has the state of another run", dense(), [keras.callbacks.History()]),
    ):
        before = weights_of(other)
        with pytest.raises(InputError, match=message):
            load(other, *callbacks)
        np.testing.assert_equal(weights_of(other), before)
        assert plateau.wait == attributes["wait"] + 5
    load(other := dense(), plateau)
    np.testing.assert_equal(weights_of(other), right)
    assert vars(plateau) == attributes | {"_model": plateau._model}


@pytest.mark.promise("a `.keras` or `.weights.h5` file is cut off")
@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_a_model_cut_off_is_refused(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    model = randomize(model_of(ROWS["LNLSTM"]))
    save = model.save if suffix == ".keras" else model.save_weights
    save(path)
    whole = path.read_bytes()
    before = weights_of(model)
    for share in (0.0, 0.1, 0.5, 0.9, 0.999):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(
            (OSError, zipfile.BadZipFile),
            match="not a zip file|truncated file|signature not found",
        ):
            model.load_weights(path)
        if suffix == ".keras":
            with pytest.raises(ValueError, match="ensure the file is an acces"):
                keras.models.load_model(path)
    np.testing.assert_equal(before, weights_of(model))


FOREIGN = {
    **{row.name: {} for row in RECURRENT},
    "other sites": {"normalize": ("kernel", "recurrent")},
    "other units": {"units": 7},
}


@pytest.mark.promise("a `.keras` or `.weights.h5` file is cut off")
@pytest.mark.parametrize("other", FOREIGN)
def test_weights_of_another_layer_are_refused(tmp_path, other):
    path = tmp_path / "other.weights.h5"
    row = ROWS.get(other, ROWS["LNLSTM"])
    model_of(row, name="rnn", **FOREIGN[other]).save_weights(path)
    model = randomize(model_of(ROWS["LNLSTM"], name="rnn"), seed=3)
    before = weights_of(model)
    if other == "LNLSTM":
        model.load_weights(path)
        assert np.any(weights_of(model)[0] != before[0])
        return
    with pytest.raises(
        ValueError,
        match="(?s)LNLSTMCell.*(expected 9 variables, but|must match)",
    ):
        model.load_weights(path)
    np.testing.assert_equal(before, weights_of(model))


def payloads(folder):
    """Configurations that run code, if something follows them."""
    marker = str(folder / "marker")
    module = folder / "hostile_module.py"
    module.write_text(f"open({marker!r}, 'w').close()\nRun = print\n")
    with pytest.warns(UserWarning, match="includes a `lambda`"):
        lambda_ = keras.saving.serialize_keras_object(
            lambda *_: open(marker, "w").close()
        )
    return {
        "lambda": lambda_,
        "class of a module": {
            "module": "hostile_module",
            "class_name": "Run",
            "config": {},
            "registered_name": None,
        },
        "function of a module": {
            "module": "os",
            "class_name": "function",
            "config": "system",
            "registered_name": "system",
        },
        "function of Keras": {
            "module": "keras.utils",
            "class_name": "function",
            "config": "get_file",
            "registered_name": "get_file",
        },
    }


def infect(path, name, payload):
    """Put a payload into the file, as an argument of the layer."""
    with zipfile.ZipFile(path) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    config = json.loads(parts["config.json"])
    config["config"]["layers"][1]["config"][name] = payload
    parts["config.json"] = json.dumps(config)
    hostile = path.with_name("hostile.keras")
    with zipfile.ZipFile(hostile, "w") as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    return hostile


def refuse(path, name, folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    for payload in payloads(folder).values():
        hostile = infect(path, name, payload)
        # A dtype that is none meets Keras' own code, without a sentence.
        with pytest.raises((ValueError, TypeError, AttributeError)) as caught:
            keras.models.load_model(hostile)
        if name != "dtype":
            assert any(
                words in str(caught.value)
                for words in (
                    "Could not interpret",
                    "could not be deserialized properly",
                    "disallowed",
                )
            )
        assert not (folder / "marker").exists()


@pytest.mark.promise("a hostile `.keras` file")
@pytest.mark.parametrize("name", ["activation", "kernel_initializer"])
def test_a_hostile_model_runs_nothing(tmp_path, name, monkeypatch):
    model = model_of(ROWS["LNLSTM"])
    model.save(tmp_path / "model.keras")
    refuse(tmp_path / "model.keras", name, tmp_path, monkeypatch)


def test_without_safe_mode_it_would(tmp_path):
    model_of(ROWS["LNLSTM"]).save(tmp_path / "model.keras")
    payload = payloads(tmp_path)["lambda"]
    hostile = infect(tmp_path / "model.keras", "activation", payload)
    model = keras.models.load_model(hostile, safe_mode=False)
    with pytest.raises((AttributeError, TypeError, ValueError)):
        model(np.ones((1, *ROWS["LNLSTM"].input_shape[1:])))  # None is no h.
    assert (tmp_path / "marker").exists()


@pytest.mark.promise("`keras_ln` was not imported before")
def test_a_model_needs_its_layers(tmp_path, monkeypatch):
    model_of(ROWS["LNGRU"]).save(tmp_path / "model.keras")
    objects = keras.saving.get_custom_objects()
    monkeypatch.delitem(objects, "keras_ln>LNGRU")
    with pytest.raises(TypeError, match="Could not locate class 'LNGRU'"):
        keras.models.load_model(tmp_path / "model.keras")
