"""NVRTC compiles the kernels of the benchmarks' sizes; images are kept."""

import pytest
from emulated import DEVICES
from nvrtc_report import reports

from keras_ln_kernels import nvrtc
from keras_ln_kernels.gpu_plan import CELLS, limits, plans, wider

UNITS = {"A": 256, "B": 512, "C": 400}


def best_plans(device, formats, rows):
    """What is launched on a kind of device, by architecture."""
    of = limits(*DEVICES[device][:3])
    for units in UNITS.values():
        for format in formats:
            for cell in CELLS:
                for backward in (False, True):
                    plan = next(plans(cell, backward, units, format, of))
                    if rows == 16:
                        plan = wider(plan, of)
                    if plan is not None:
                        yield of.architecture, plan.kernel


@pytest.mark.parametrize(
    ("formats", "rows", "devices"),
    [
        (["tf32", "3xtf32", "bfloat16"], 8, [*DEVICES]),
        (["tf32", "3xtf32"], 16, ["H100"]),
        # The code of bfloat16, but for two instructions.
        pytest.param(["float16"], 8, [*DEVICES], marks=pytest.mark.slow),
        pytest.param(
            *(["tf32", "3xtf32", "bfloat16", "float16"], 16, [*DEVICES]),
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_registers(formats, rows, devices):
    """At most 255 of a thread; little is spilled, and no array in memory."""
    jobs = [job for d in devices for job in best_plans(d, formats, rows)]
    found = reports(jobs)
    known = {limits(*DEVICES[name][:3]).architecture for name in devices}
    assert {job[0] for job in found} == known
    wrong = [job for job in found if job[2] > 255 or job[3] > 256 or job[4]]
    assert not wrong


def test_what_does_not_compile():
    by, reason = nvrtc.compiler(13)
    assert by is not None, reason
    with pytest.raises(
        RuntimeError, match="does not compile no_such<1> for sm"
    ):
        by.compile("no_such<1>", "sm_90a")


class Counting:
    """Stands for a compiler."""

    version = (13, 0)

    def __init__(self):
        self.asked = []

    def compile(self, kernel, architecture):
        self.asked.append(kernel)
        return nvrtc.Image(b"image of " + kernel.encode(), "name", "a log")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder for images, and a function that forgets those in memory."""
    monkeypatch.setenv("KERAS_LN_KERNELS_CACHE", str(tmp_path / "images"))
    monkeypatch.setattr(nvrtc, "_images", {})

    def forget():
        nvrtc._images.clear()

    return tmp_path / "images", forget


def test_an_image_is_compiled_once(cache):
    folder, forget = cache
    by = Counting()
    first = nvrtc.image(by, "a", "sm_90a")
    assert nvrtc.image(by, "a", "sm_90a") is first
    forget()
    kept = nvrtc.image(by, "a", "sm_90a")
    assert (kept.cubin, kept.name) == (first.cubin, first.name)
    assert by.asked == ["a"]
    nvrtc.image(by, "a", "sm_80")
    by.version = (13, 1)
    nvrtc.image(by, "a", "sm_80")
    assert by.asked == ["a"] * 3
    assert {path.suffix for path in folder.iterdir()} == {".cubin"}


def test_other_sources_are_other_images(cache, monkeypatch):
    by = Counting()
    nvrtc.image(by, "a", "sm_90a")
    texts = nvrtc.headers()
    changed = texts | {"group.h": texts["group.h"] + b" "}
    monkeypatch.setattr(nvrtc, "headers", lambda: changed)
    nvrtc.image(by, "a", "sm_90a")
    assert by.asked == ["a", "a"]


@pytest.mark.promise("a cache that is damaged")
@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
        lambda whole: whole.replace(b"name", b"mane"),
        lambda whole: b"x" + whole,
    ],
)
def test_a_damaged_file_is_compiled_anew(cache, damage):
    folder, forget = cache
    by = Counting()
    nvrtc.image(by, "a", "sm_90a")
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    forget()
    assert nvrtc.image(by, "a", "sm_90a").cubin == b"image of a"
    assert by.asked == ["a", "a"]
    assert path.read_bytes() == whole


@pytest.mark.promise("a cache that is damaged")
@pytest.mark.parametrize("whose", ["folder", "file"])
def test_an_image_that_others_may_write(cache, whose):
    """It is compiled again, and a warning tells why."""
    folder, forget = cache
    by = Counting()
    nvrtc.image(by, "a", "sm_90a")
    (path,) = folder.iterdir()
    (folder if whose == "folder" else path).chmod(0o777)
    forget()
    with pytest.warns(UserWarning, match="chmod go-w"):
        nvrtc.image(by, "a", "sm_90a")
    assert by.asked == ["a", "a"]


@pytest.mark.promise("a cache that is damaged")
def test_a_folder_that_cannot_be_written(cache):
    """Images stay in memory."""
    folder, _ = cache
    folder.write_text("a file, not a folder")
    by = Counting()
    for _ in range(2):
        assert nvrtc.image(by, "a", "sm_90a").name == "name"
    assert by.asked == ["a"]


def test_a_disk_that_is_full(cache, monkeypatch):
    folder, _ = cache

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nvrtc.os, "replace", full)
    nvrtc.image(Counting(), "a", "sm_90a")
    assert not [*folder.iterdir()]
