"""The way to a GPU: what is launched, what is kept, and what goes wrong."""

import ctypes
import re
import sys
from pathlib import Path

import emulated
import gpu_problems
import numpy as np
import pytest
from gpu_problems import CASES, SMALL, drawn_of
from test_arguments import fresh as printed_by

from keras_ln_kernels import gpu, gpu_plan, gpu_structs, nvrtc

HERE = Path(__file__).parent
HEADER = (HERE.parent / "src" / "cuda" / "sequence.h").read_text()


@pytest.fixture
def fresh(emulation):
    """A driver of its own state: nothing is loaded or noted."""
    emulation.fake.fake_forget()
    made = emulated.Emulation(emulation.library)
    yield made
    for device, kind in enumerate(("H100", "A100")):
        made.become(device, kind)
    made.fake.fake_set(b"version", 13000)
    made.fake.fake_set(b"clusters", 8)


def test_the_struct_is_the_header_s():
    struct = re.search(r"struct Sequence \{(.*?)\n\};", HEADER, re.S)[1]
    code = re.sub(r"//.*", "", struct)
    names = re.findall(r"(\w+)(?=[;,])", code)
    assert names == [name for name, _ in gpu_structs.Sequence._fields_]


def test_a_launch(fresh):
    """On the device and the stream that it is told, in their context."""
    plan = SMALL.plan("lstm")
    gpu_problems.forward(
        fresh, plan, drawn_of("lstm", SMALL), device=1, stream=77
    )
    shape = plan.blocks, plan.threads, plan.shared_bytes
    assert fresh.log()[-1] == ("cluster", 77, 1, *shape)
    assert fresh.fake.fake_contexts() == 0


def any_kernel(kernel, architecture):
    """An image for kernels that are planned and not launched."""
    return emulated.by_name(SMALL.plan("lstm").kernel, "")


@pytest.mark.parametrize("code", [912, 801, 1, 0])
def test_no_room_for_a_cluster(fresh, code):
    """A GPU may say so by an error, or beforehand: then no group fits."""
    made = emulated.Emulation(fresh.library, any_kernel)
    made.fake.fake_fail(b"cuOccupancyMaxActiveClusters", code)
    made.fake.fake_attribute(0, 120, int(code > 0))
    plan = made.gpu.plan("lstm", False, 256, "tf32", 0)
    made.fake.fake_fail(b"cuOccupancyMaxActiveClusters", 0)
    assert not plan.cluster
    # Nor may the blocks of a grid meet.
    made.fake.fake_attribute(0, 95, 0)
    made.gpu._limits.clear()
    made.gpu._chosen.clear()
    made.fake.fake_attribute(0, 120, 0)
    assert "do not fit" in made.gpu.plan("lstm", False, 256, "tf32", 0)


def test_groups_that_meet_in_memory_take_16_rows(fresh):
    """On an A100 13 groups of 8 blocks run at once."""
    made = emulated.Emulation(fresh.library, any_kernel)
    few, many = (
        made.gpu.plan("gru", True, 256, "tf32", 1, n) for n in (8, 105)
    )
    assert not few.cluster and not many.cluster
    assert made.gpu.at_once(few, 1) == 104
    # Bytes for each block, and counters for each group, that run at once.
    spaces = [made.gpu.workspace(p, 1, 105) for p in (few, many)]
    assert [space["counters"] for space in spaces] == [13 * 128, 7 * 128]
    assert [space["exchange"] for space in spaces] == [
        13 * 8 * few.box_bytes,
        7 * 8 * many.box_bytes,
    ]
    assert made.gpu.workspace(few, 1) == spaces[0]


@pytest.mark.parametrize("device", emulated.DEVICES)
@pytest.mark.parametrize("format", gpu_plan.FORMATS)
def test_every_size_has_a_plan(device, format):
    of = gpu_plan.limits(*emulated.DEVICES[device][:3])
    for units in (1, 8, 33, 100, 256, 400, 500, 512):
        for cell in gpu_plan.CELLS:
            for backward in (False, True):
                args = (cell, backward, units, format, of)
                (first, *_) = gpu_plan.plans(*args)
                assert first.shared_bytes <= of.shared_bytes
                assert first.blocks <= (of.largest_cluster or 32) or not (
                    first.cluster
                )
    assert not [*gpu_plan.plans("lstm", False, 513, format, of)]


@pytest.mark.promise("no switch, no driver, no NVRTC")
def test_what_is_not_run_has_a_reason(fresh):
    plan = fresh.gpu.plan
    assert plan("lstm", False, 513, "tf32", 0) == (
        "units: at most 512 fit. Received: 513."
    )
    assert plan("lstm", False, 20, "tf32", 2) == "there is no GPU 2."
    old = emulated.Emulation(fresh.library)
    old.fake.fake_attribute(0, 75, 7)
    old.fake.fake_attribute(0, 76, 5)
    assert old.gpu.plan("lstm", False, 20, "tf32", 0) == (
        "GPU 0 is sm_75: sm_80 is needed."
    )


def test_a_device_that_grants_no_cluster(fresh):
    """Its blocks meet in global memory; where none fits, a sentence says so."""
    images = []

    def image(kernel, architecture):
        images.append((kernel, architecture))
        return emulated.by_name(SMALL.plan("lstm").kernel, "")

    made = emulated.Emulation(fresh.library, image)
    made.fake.fake_set(b"clusters", 0)
    plan = made.gpu.plan("lstm", False, 400, "3xtf32", 0)
    assert not plan.cluster
    tried = [kernel.split(", ")[1::4] for kernel, _ in images]
    assert tried == [["13", "true>"], ["16", "true>"], ["13", "false>"]]
    made.fake.fake_set(b"blocks", 0)
    reason = made.gpu.plan("lstm", False, 401, "3xtf32", 0)
    made.fake.fake_set(b"blocks", 1)
    assert reason == (
        "units: 401 in 3xtf32 do not fit GPU 0 (sm_90a, 232448 bytes of "
        "shared memory)."
    )


def test_an_array_of_which_the_driver_knows_nothing(fresh):
    """One warning, and the launch."""
    gpu._warn_of_memory.cache_clear()
    drawn = drawn_of("lstm", SMALL)
    right = gpu_problems.forward(fresh, SMALL.plan("lstm"), drawn)
    fresh.fake.fake_forget()
    fresh.remember = lambda arrays, device: None
    with pytest.warns(UserWarning, match="does not say which GPU") as noted:
        for _ in range(2):
            found = gpu_problems.forward(fresh, SMALL.plan("lstm"), drawn)
    assert len(noted) == 1
    np.testing.assert_array_equal(found["h"], right["h"])


def test_an_array_that_is_elsewhere(fresh):
    drawn = drawn_of("lstm", SMALL)
    arrays = gpu_problems.arguments(drawn)
    places = {name: a.ctypes.data for name, a in arrays.items()}
    stranger = arrays.pop("recurrent")
    fresh.remember(arrays, 0)
    fresh.remember({"recurrent": stranger}, 1)
    message = "^recurrent: expected an array in the memory of GPU 0"
    with pytest.raises(ValueError, match=message):
        fresh.gpu.launch(SMALL.plan("lstm"), places, 3, 4, device=0)
    assert "cluster" not in [line[0] for line in fresh.log()]
    assert fresh.fake.fake_contexts() == 0


def test_nothing_to_do(fresh):
    """Without rows; without steps there would be no final state."""
    plan = SMALL.plan("lstm")
    fresh.gpu.launch(plan, {}, 0, 4, device=0)
    with pytest.raises(ValueError, match="^steps: expected at least 1. Rec"):
        fresh.gpu.launch(plan, {}, 3, 0, device=0)
    assert fresh.log() == []


NO_IMAGE = "no kernel image is available for execution on the device"
FAULTS = {
    "cuLibraryLoadData": (209, RuntimeError, f"loading .*: {NO_IMAGE}."),
    "cuLibraryGetKernel": (2, MemoryError, "loading .*: out of memory."),
    "cuKernelGetFunction": (1, RuntimeError, ".*GPU 0: invalid argument."),
    "cuFuncSetAttribute": (1, RuntimeError, ".*GPU 0: invalid argument."),
    "cuDevicePrimaryCtxRetain": (2, MemoryError, ".*GPU 2: out of memory."),
    "cuCtxPushCurrent": (101, RuntimeError, ".*GPU 0: invalid device ord"),
    "cuLaunchKernelEx": (2, MemoryError, ".*GPU 0: out of memory."),
    "cuMemsetD32Async": (999, RuntimeError, ".*an error that .* no words for."),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (
        *(700, RuntimeError),
        ".*GPU 0: an illegal memory access was encountered.",
    ),
}


@pytest.mark.parametrize("function", FAULTS)
def test_errors_of_the_driver(fresh, function):
    """One sentence each, which names the kernel and the device."""
    code, kind, message = FAULTS[function]
    case = SMALL
    if function in ("cuMemsetD32Async", [*FAULTS][-1]):
        case = CASES["through global memory"]
    # Contexts are kept: one of a device that no test has used.
    device = 2 if function == "cuDevicePrimaryCtxRetain" else 0
    if device:
        fresh.become(device, "H100")
        fresh.fake.fake_set(b"devices", 3)
    fresh.fake.fake_fail(function.encode(), code)
    with pytest.raises(kind, match=f"^{message}"):
        gpu_problems.forward(
            fresh, case.plan("lstm"), drawn_of("lstm", case), device=device
        )
    fresh.fake.fake_fail(function.encode(), 0)
    fresh.fake.fake_set(b"devices", 2)
    assert fresh.fake.fake_contexts() == 0


def test_what_a_driver_must_have(fresh):
    with pytest.raises(RuntimeError, match="^there is no CUDA driver.$"):
        gpu.Gpu("libno_such_driver.so.1")
    other = "libc.so.6" if sys.platform == "linux" else "libSystem.dylib"
    with pytest.raises(RuntimeError, match="has no cuLibraryLoadData: CUDA 12"):
        gpu.Gpu(other)
    fresh.fake.fake_set(b"version", 11080)
    with pytest.raises(RuntimeError, match="is for CUDA 11.8: 12.0 or newer"):
        gpu.Gpu(str(fresh.library))
    fresh.fake.fake_fail(b"cuInit", 100)
    with pytest.raises(RuntimeError, match="^the CUDA driver starts with 100"):
        gpu.Gpu(str(fresh.library))
    fresh.fake.fake_fail(b"cuInit", 0)


@pytest.mark.promise("no switch, no driver, no NVRTC")
def test_no_nvrtc(fresh, monkeypatch):
    """Or one that is newer than the driver, or damaged: the next way."""
    found = nvrtc.libraries()
    made = gpu.Gpu(str(fresh.library))
    for files, cuda, reason in (
        ([], 13, "no package nvidia-cuda-nvrtc is installed"),
        (found, 12, "NVRTC 13.* is not for a driver of CUDA 12"),
        ([Path(__file__)], 13, "test_gpu_host.py does not load"),
    ):
        monkeypatch.setattr(nvrtc, "libraries", lambda files=files: files)
        nvrtc.compiler.cache_clear()
        made.cuda, made._chosen = cuda, {}
        said = made.plan("lstm", False, 20, "tf32", 0)
        assert re.match(f"there is no NVRTC for CUDA {cuda}: .*{reason}", said)
    nvrtc.compiler.cache_clear()


def test_where_nvrtc_is_found(tmp_path, monkeypatch):
    """In the folders of every way to install it, and as the loader has it."""
    (there,) = [p for p in nvrtc.libraries() if p.is_absolute()][:1]
    kinds = {
        "CONDA_PREFIX": "lib",
        "CUDA_HOME": "lib64",
        "CUDA_PATH": "targets/x86_64-linux/lib",
    }
    for variable, folder in kinds.items():
        file = tmp_path / variable / folder / "libnvrtc.so.13"
        file.parent.mkdir(parents=True)
        file.write_bytes(there.read_bytes()[:100])
        monkeypatch.setenv(variable, str(tmp_path / variable))
        assert file.resolve() in nvrtc.libraries()
    code = (
        "from keras_ln_kernels import nvrtc\n"
        "nvrtc.libraries = lambda: nvrtc._BARE\n"
        "print(nvrtc.compiler(13)[0].version)"
    )
    found = printed_by(code, LD_LIBRARY_PATH=str(there.parent))
    assert found.startswith("(13, ")


def test_the_whole_way(fresh, tmp_path, monkeypatch):
    """The name that NVRTC gives a kernel is what the driver looks for."""
    monkeypatch.setenv("KERAS_LN_KERNELS_CACHE", str(tmp_path))
    made = emulated.Emulation(fresh.library, None)
    plan = made.gpu.plan("gru", False, 20, "3xtf32", 0)
    assert plan == SMALL.plan("gru")
    drawn = drawn_of("gru", SMALL)
    found = gpu_problems.forward(made, plan, drawn)
    expected = gpu_problems.forward(fresh, plan, drawn)
    np.testing.assert_array_equal(found["h"], expected["h"])
    (kept,) = tmp_path.iterdir()
    assert b"\x7fELF" in kept.read_bytes()


def test_this_machine_has_a_reason_or_a_gpu():
    """And the library alone tells, without NumPy or a framework."""
    code = "from keras_ln_kernels import gpu; print(gpu.unsupported_reason())"
    assert re.fullmatch(r"None|[a-z].*\.", printed_by(code))
    assert ctypes.sizeof(gpu_structs.Sequence) % 8 == 0
