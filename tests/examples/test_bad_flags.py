"""Flags that a script refuses: in one sentence, before it writes anything."""

import importlib
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from common import files
from scripts import refusal
from text_sets import SICK


def book():
    """Sentences of two lengths, whose neighbours can be foreseen."""
    random = np.random.default_rng(0)
    words = "a the story warm dull of letter man woman reading".split()
    return "\n".join(
        " ".join(random.choice(words, 1 + number % 2)) + "."
        for number in range(170)
    )


def write_captions(folder, counts):
    """The files as Vendrov et al. published them."""
    random = np.random.default_rng(0)
    words = np.array("a red blue cat dog runs sits on the old sofa".split())
    for split, count in counts.items():
        features = random.random((count, 6), np.float32)
        np.save(folder / f"{split}_ims.npy", features)
        lines = [
            " ".join(
                words[random.integers(len(words), size=random.integers(2, 9))]
            )
            for _ in range(5 * count)
        ]
        (folder / f"{split}_caps.txt").write_text("\n".join([*lines, ""]))


SEARCH = "permutation_invariant_mnist"
# Of each script: what flags begin with; flags, and what is said of them.
CASES = {
    "permutation_invariant_mnist": (
        "",
        ("--norm group", "argument --norm: invalid choice: 'group'"),
        ("--preset tiny", "argument --preset: invalid choice: 'tiny'"),
        ("--seed -1", "expected an integer of at least 0 and at most"),
        ("--seed 1 1 --compare", "--seed: expected different .* received 1 1"),
        ("--seed 1 2", "several values of --seed need --compare"),
        ("--learning-rate 0", "expected a positive number, received '0'"),
        ("--compare --norm layer", "--compare trains all kinds; leave out"),
        ("--data nowhere", "or a path that exists, received 'nowhere'"),
        ("--data empty", "--data: expected embedded or tfds, received /"),
        ("--data-dir .", "--data-dir belongs to --data tfds"),
        ("--batch-size 2000", "2000 is more than the 1280 training examples"),
        ("--norm batch --batch-size 1", "needs a --batch-size of at least 2"),
        ("--output-dir a_file", "a_file is no writable folder"),
        ("--output-dir full", "full holds other files and no run; choose"),
        ("--output-dir link", r"link cannot be made \(File exists\)"),
        ("--output-dir busy", "another process writes to busy; wait for"),
        ("--seed 2147483647", "of at least 0 and at most 2147483548, received"),
        ("--tune", "examples/tune.py searches with KerasTuner"),
        ("--tune-epochs 3", "and examples/search.py compares layers"),
        ("--examples 1281", "1281 is more than the 1280 training images"),
    ),
    "sequential_mnist": (
        "",
        ("--order backwards", "argument --order: invalid choice: 'backwards'"),
        ("--pool 3", "--pool 3 does not divide the 8 x 8 pixels"),
        ("--pool 16", "--pool 16 does not divide the 8 x 8 pixels"),
    ),
    "draw_mnist": (
        "",
        ("--read-size 1", "expected an integer of at least 2, received"),
        ("--forget-steps 1", "expected an integer of at least 2, received '1'"),
    ),
    "handwriting_generation": (
        "",
        ("--batch-size 65", "65 is more than the 56 training examples"),
        ("--bias -1", "argument --bias: expected a number of at least 0"),
        ("--text ok año", "expected characters of ' .,'ABC"),
        ("--data .", "trainset.txt cannot be read"),
    ),
    "attentive_reader": (
        "",
        ("--batch-size 999", "999 is more than the .* training examples"),
        ("--length 1", "no question is left with its answer in --sentences 4"),
        ("--dropout 1", "argument --dropout: expected a number from 0 to be"),
        ("--data .", "expected a folder with the folder questions of CNN"),
    ),
    "order_embeddings": (
        "--fold 20 --batch-size 16",
        ("--batch-size 65", "65 is more than the 64 training examples"),
        ("--batch-size 1", "--batch-size 1 leaves a device no wrong pairs to"),
        ("--fold 21", "the 20 dev images are fewer than the 21 of --fold"),
        ("--evaluate-every 7", "does not divide the 200 updates of this run"),
        ("--data .", "train_ims.npy cannot be read"),
        ("--data short", "the 19 test images are fewer than the 20 of --fold"),
    ),
    "skip_thoughts": (
        "--units 4 --word-units 3 --length 3 --data book.txt --batch-size 8",
        ("--batch-size 81", "--batch-size 81 is more than the sentences of an"),
        ("--evaluate-every 26", "does not divide the .* updates of this run"),
        ("--data tfds", "the paper's books are not published, received"),
        ("--data empty", "has no .txt files"),
        ("--data two.txt", "two.txt: expected at least 3 sentences, rec"),
        ("--data latin.txt", "latin.txt cannot be read: 'utf-8' codec"),
        ("--eval-tasks mr", "--eval-tasks names tasks of --eval-dir"),
        ("--eval-tasks ../mr", "argument --eval-tasks: expected letters, dig"),
        ("--eval-dir tasks --eval-tasks trec", "has no trec.pos, which the"),
        ("--eval-dir empty", "has no SICK_train.txt, which the task sick ne"),
        ("--eval-dir none", "none is no folder"),
        ("--eval-dir tasks --eval-tasks mr --data foreign.txt", "none of the"),
        ("--word-vectors none.txt", "none.txt cannot be read as word2vec"),
        ("--word-vectors short.txt", ": 1 numbers in line 3"),
        ("--word-vectors few.txt", "--word-vectors: 2 of the words that the"),
    ),
    "everyday": (
        "",
        ("--task sums", "argument --task: invalid choice: 'sums'"),
        ("--task", "argument --task: expected one argument"),
        ("--task verses --norm bnlstm", "argument --norm: invalid choice"),
        ("--data tfds", "expected --data embedded, received tfds"),
        (
            "--task movements --compare --seed 200 201 208",
            r"seeds 8 apart test the same; received \[200, 201, 208\]",
        ),
        ("--task addition --examples 250001", "expected at most 250000, rec"),
        ("--examples 240 --batch-size 221", "more than the 201 training exam"),
    ),
    "recurrent_dynamics": (
        "",
        ("--steps 1", "argument --steps: expected an integer of at least 2"),
        ("--seed x", "argument --seed: expected an integer"),
        ("--step 3", "unrecognized arguments: --step 3"),
        ("--steps 4 --output-dir ran", "another run .*steps 3 there, 4 here"),
        ("--output-dir link", r"link cannot be made \(File exists\)"),
        ("--output-dir busy", "another process writes to busy; wait for"),
    ),
    "cartpole": (
        "",
        ("--updates 0", "argument --updates: expected an integer of at least"),
    ),
    "tune": (
        "",
        ("chess", "argument EXPERIMENT: invalid choice: 'chess'"),
        (f"{SEARCH} --norm layer", "--norm cannot be used in a search"),
        (f"{SEARCH} --nonsense", "unrecognized arguments: --nonsense"),
        (f"{SEARCH} --data nowhere", "or a path that exists, received"),
        (f"{SEARCH} --compare", "--compare cannot be used in a search"),
        (f"{SEARCH} --norm-kinds weight", "any of none, layer, batch, rec"),
        ("order_embeddings --norm-kinds none symmetric", "only symmetric"),
        (f"{SEARCH} --learning-rates 1 1", "a low and a higher number"),
        (f"{SEARCH} --output-dir link", r"link cannot be made \(File exists"),
        (f"{SEARCH} --output-dir busy", "another process writes to busy; wait"),
        (
            f"{SEARCH} --tuner bayesian --resume --output-dir ran",
            "another run .*tuner random there, bayesian here",
        ),
    ),
}


@pytest.fixture
def untrained(few, monkeypatch):
    """Small data, so that a batch size can be too large; none is trained on."""

    def never(*args):
        pytest.fail("trained")

    monkeypatch.setattr(keras.Model, "fit", never)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A working directory with what the flags above name."""
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "short", "full", "ran", "busy"):
        (tmp_path / name).mkdir()
    # Nothing is there, and yet there is something in the way.
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    SICK.make(tmp_path / "tasks")
    write_captions(tmp_path / "short", {"train": 16, "dev": 20, "test": 19})
    for name, content in {
        "a_file": b"",
        "full/thesis.tex": b"",
        "ran/args.json": b'{"tuner": "random", "steps": 3}',
        "book.txt": book().encode(),
        "two.txt": b"One. Two.",
        "latin.txt": b"One.\nCaf\xe9. Three.",
        "foreign.txt": b"eins zwei! drei vier! " * 20,
        "short.txt": b"2 2\nthe 1 2\na 1\n",
        "few.txt": b"3 2\nthe 1 2\na 1 3\nbook 1 1\n",
    }.items():
        (tmp_path / name).write_bytes(content)
    with files.alone_in(Path("busy")):
        yield tmp_path


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        pytest.param(name, f"{start} {flags}", message, id=f"{name} {flags}")
        for name, (start, *refused) in CASES.items()
        for flags, message in refused
    ],
)
def test_bad_flags(name, flags, message, untrained, elsewhere, capsys):
    before = sorted(elsewhere.rglob("*"))
    flags = flags.split()
    if "--output-dir" not in flags:
        flags += ["--output-dir", "run"]
    line = refusal(capsys, importlib.import_module(name).main, *flags)
    assert re.match(rf"({name}|{SEARCH})\.py: error: ", line)
    assert re.search(message, line), line
    assert sorted(elsewhere.rglob("*")) == before
