"""The scripts that use nothing of examples/common."""

import re
from pathlib import Path

import pytest
import quick_start
import streaming


def test_trains_both_models_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert quick_start.main(["--epochs", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("LSTM: test error ")
    assert "\nLNLSTM: test error " in said
    assert (tmp_path / "quick_start.png").stat().st_size > 10_000


def test_no_epochs_are_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        quick_start.main(["--epochs", "0"])
    message = "--epochs: expected at least 1, received 0"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("figure", ["none/x.png", "x.xyz"])
def test_a_figure_that_cannot_be_written_is_refused(capsys, figure):
    with pytest.raises(SystemExit, match="2"):
        quick_start.main(["--figure", figure])
    message = f"--figure: expected FOLDER/NAME.png, received {figure}"
    assert message in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.every_backend
@pytest.mark.filterwarnings("ignore:.*LiteRT interpreter:UserWarning")
def test_denoises_frame_by_frame(tmp_path, capsys):
    arguments = ["--epochs", "1", "--frames", "50", "--folder", str(tmp_path)]
    assert streaming.main(arguments) == 0
    said = capsys.readouterr().out
    noisy, denoised = map(float, re.findall(r"noise (\S+) dB", said))
    assert denoised > noisy + 3
    assert re.search(r"A frame of 10 ms takes \S+ ms .mean., \S+ ms", said)
    assert (tmp_path / "streaming.png").stat().st_size > 10_000
    assert len(Path(streaming.__file__).read_text().splitlines()) <= 150


def test_no_folder_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        streaming.main(["--folder", "none"])
    assert "--folder: a folder" in capsys.readouterr().err


def test_reads_from_top_to_bottom():
    source = Path(quick_start.__file__).read_text()
    assert not re.search(r"^\s*(import|from) common", source, re.MULTILINE)
    assert len(source.splitlines()) <= 85


def test_images_are_sequences_of_rows():
    (x, labels), (held_out, _) = quick_start.load_data()
    assert x.shape == (1400, 8, 8) and held_out.shape == (397, 8, 8)
    assert x.min() == 0 and x.max() == 1
    assert set(labels) == set(range(10))
