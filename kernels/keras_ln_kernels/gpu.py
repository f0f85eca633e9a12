"""Recurrent layers over whole sequences on an NVIDIA GPU, in one launch.

For bindings to tensors: arrays are addresses. src/cuda/sequence.h says what
they are, and what a caller computes around a launch. None of it has run on a
GPU yet, and nothing uses it.
"""

import ctypes
import functools
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from keras_ln_kernels import nvrtc
from keras_ln_kernels.library import library

ARRAYS = (
    *("zx", "flags", "initial_h", "initial_c", "reset_h", "reset_c"),
    *("recurrent", "recurrent_gamma", "recurrent_bias"),
    *("state_gamma", "state_beta"),
    *("h", "c", "from_h", "norms", "final_h", "final_c"),
    *("back", "d_h", "d_final_h", "d_final_c"),
    *("d_zx", "d_shown", "d_state_gamma", "d_state_beta"),
    *("d_initial_h", "d_initial_c"),
    *("d_reset_h", "d_reset_c", "exchange", "counters"),
)
CELLS = {"lstm": 0, "gru": 1}
FORMATS = {"tf32": 0, "bfloat16": 1, "float16": 2, "3xtf32": 3}
MOST_UNITS = 512
ROWS = 8  # of a group of blocks: the n of the hardware's matrix product

# Of a CUDA driver: src/gpu.cc takes these, in this order.
_FUNCTIONS = (
    *("cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction"),
    *("cuFuncSetAttribute", "cuOccupancyMaxActiveClusters"),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    *("cuLaunchKernelEx", "cuMemsetD32Async", "cuGetErrorString"),
    *("cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"),
    *("cuDeviceGetAttribute", "cuPointerGetAttribute"),
)
_SHARED_BYTES, _MAJOR, _MINOR = 97, 75, 76  # CUdevice_attribute


class Sequence(ctypes.Structure):
    """src/cuda/sequence.h."""

    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ARRAYS],
        *[(n, ctypes.c_int) for n in ("batch", "steps", "first_row")],
        ("go_backwards", ctypes.c_int),
        ("epsilon", ctypes.c_float),
    ]


class Shape(ctypes.Structure):
    """KlnGpuShape."""

    _fields_ = [
        *[(n, ctypes.c_int32) for n in ("kernel", "units", "blocks", "kept")],
        *[(n, ctypes.c_int32) for n in ("format", "cluster")],
        *[(n, ctypes.c_int32) for n in ("threads", "shared_bytes")],
        ("box_bytes", ctypes.c_int32),
    ]


class _Launch(ctypes.Structure):
    """KlnGpuLaunch."""

    _fields_ = [
        ("shape", Shape),
        *[(name, ctypes.c_int32) for name in ("device", "array")],
        *[(name, ctypes.c_void_p) for name in ("kernel", "stream")],
        ("sequence", Sequence),
    ]


class Limits(NamedTuple):
    """What a kind of device allows."""

    architecture: str
    shared_bytes: int  # of a block
    largest_cluster: int  # 0 where there are none


class Plan(NamedTuple):
    """One instance of a kernel, and how it is launched."""

    cell: str
    backward: bool
    units: int
    blocks: int  # of a group, which takes 8 rows of the batch
    kept: int  # chunks of a warp's matrix that are in registers
    format: str
    cluster: bool  # or blocks that meet in global memory
    threads: int
    shared_bytes: int
    box_bytes: int

    @property
    def kernel(self) -> str:
        """The instance's name in C++."""
        name = f"{self.cell}_{'backward' if self.backward else 'forward'}"
        cluster = "true" if self.cluster else "false"
        return (
            f"{name}<{self.units}, {self.blocks}, {self.kept}, "
            f"{FORMATS[self.format]}, {cluster}>"
        )

    def workspace(self, batch: int) -> dict[str, int]:
        """Bytes of the arrays "exchange" and "counters", where it takes them.

        They need no values.
        """
        if self.cluster:
            return {}
        groups = -(-batch // ROWS)
        boxes = groups * (self.blocks if self.backward else 1)
        return {"exchange": boxes * self.box_bytes, "counters": groups * 128}


def limits(major: int, minor: int, shared_bytes: int) -> Limits:
    """Those of a device of compute capability `major.minor`."""
    # Hopper's instructions are named by "a" alone; clusters of more than 8
    # blocks are for the large chips.
    suffix = "a" if (major, minor) == (9, 0) else ""
    cluster = {8: 0, 9: 16, 10: 16, 11: 16}.get(major, 8)
    return Limits(f"sm_{major}{minor}{suffix}", shared_bytes, cluster)


def planned(
    cell: str,
    backward: bool,
    units: int,
    blocks: int,
    kept: int,
    format: str,
    cluster: bool,
) -> Plan:
    """This instance of a kernel, whatever it fits."""
    shape = Shape(
        kernel=CELLS[cell] + 2 * backward,
        units=units,
        blocks=blocks,
        kept=kept,
        format=FORMATS[format],
        cluster=cluster,
    )
    _functions().kln_gpu_shape(ctypes.byref(shape))
    return Plan(
        *(cell, backward, units, blocks, kept, format, cluster),
        *(shape.threads, shape.shared_bytes, shape.box_bytes),
    )


def plans(
    cell: str, backward: bool, units: int, format: str, of: Limits
) -> Iterator[Plan]:
    """The instances that fit, the best first.

    - A block has 32 units: 8 warps of 255 registers, all that a processor has.
    - Clusters meet fastest. Of a number of blocks that is no power of two, the
      hardware may have none; the next power of two follows.
    - Blocks that meet in global memory are for GPUs without clusters, or with
      smaller ones. They have 32 units, or 16 where shared memory is small.
    - 128 registers of a thread hold the matrix, the rest is in shared memory.
      A split operand takes registers of its own: 96 where that fits.
    """
    if units > MOST_UNITS:
        return
    blocks = -(-units // 32)
    power = 1 << (blocks - 1).bit_length()
    groups = [(n, True) for n in dict.fromkeys((blocks, power))]
    groups += [(blocks, False), (-(-units // 16), False)]
    registers = (96, 128) if format == "3xtf32" else (128,)
    for n, cluster in groups:
        if cluster and n > of.largest_cluster:
            continue
        tiles = {"lstm": 2, "gru": 3}[cell]
        if backward:
            tiles = -(-n * (-(-units // (8 * n)) * 8) // 128)
        for most in registers:
            kept = max(1, most // (8 * tiles))
            plan = planned(cell, backward, units, n, kept, format, cluster)
            if plan.shared_bytes <= of.shared_bytes:
                yield plan
                break


@functools.cache
def _functions() -> Any:
    loaded = library()
    text = ctypes.c_char_p
    launch, number = ctypes.POINTER(_Launch), ctypes.POINTER(ctypes.c_int32)
    handle = ctypes.POINTER(ctypes.c_void_p)
    for name, result, arguments in (
        ("use_driver", None, [handle]),
        ("shape", None, [ctypes.POINTER(Shape)]),
        ("load", text, [text, text, handle]),
        ("groups", text, [launch, number]),
        ("launch", text, [launch]),
    ):
        function = getattr(loaded, f"kln_gpu_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


class Gpu:
    """A CUDA driver with its devices, and the kernels loaded by it.

    Raises:
        RuntimeError: with the reason, where it cannot be used.
    """

    def __init__(self, path: str = "libcuda.so.1", images: Any = None):
        """Opens the driver.

        `images(kernel, architecture)` takes NVRTC's place: an `nvrtc.Image`.
        """
        self._images = images
        try:
            self._driver = ctypes.CDLL(path)
        except OSError:
            raise RuntimeError("there is no CUDA driver.") from None
        for name in _FUNCTIONS:
            if not hasattr(self._driver, name):
                raise RuntimeError(
                    f"the CUDA driver has no {name}: CUDA 12.0 or newer is "
                    "needed."
                )
        self._check("starts", self._driver.cuInit(0))
        version = self._number("cuDriverGetVersion")
        self.cuda = version // 1000
        if self.cuda < 12:
            raise RuntimeError(
                f"the CUDA driver is for CUDA {self.cuda}.{version % 1000 // 10}"
                ": 12.0 or newer is needed."
            )
        addresses = [
            ctypes.cast(getattr(self._driver, name), ctypes.c_void_p).value
            for name in _FUNCTIONS
        ]
        _functions().kln_gpu_use_driver(
            (ctypes.c_void_p * len(addresses))(*addresses)
        )
        self.devices = self._number("cuDeviceGetCount")
        self._kernels: dict[tuple[str, str], ctypes.c_void_p] = {}
        self._chosen: dict[Any, Plan | str] = {}
        self._lock = threading.RLock()

    def limits(self, device: int) -> Limits:
        """What a device allows."""
        number = functools.partial(self._number, "cuDeviceGetAttribute")
        return limits(
            *(number(kind, device) for kind in (_MAJOR, _MINOR, _SHARED_BYTES))
        )

    def plan(
        self, cell: str, backward: bool, units: int, format: str, device: int
    ) -> Plan | str:
        """How a device runs a kernel, or the sentence that says why not.

        The first call compiles and loads.
        """
        key = (cell, backward, units, format, device)
        with self._lock:
            if key not in self._chosen:
                self._chosen[key] = self._plan(*key)
            return self._chosen[key]

    def launch(
        self,
        plan: Plan,
        arrays: Mapping[str, int],
        batch: int,
        steps: int,
        *,
        device: int,
        stream: int = 0,
        epsilon: float = 1e-5,
        go_backwards: bool = False,
    ) -> None:
        """Enqueues a kernel on a device's stream, and does not wait.

        `arrays` are addresses by name, of `ARRAYS`. Its arrays must be dense,
        of the shapes that src/cuda/sequence.h tells, and alive until the stream
        is through.

        Raises:
            ValueError: where an array is not in the device's memory.
            MemoryError: where the driver has none left.
            RuntimeError: with what else the driver or the compiler says.
        """
        if batch == 0 or steps == 0:
            return
        launch = self._launch(plan, device, stream)
        launch.sequence = Sequence(
            **arrays,
            batch=batch,
            steps=steps,
            go_backwards=go_backwards,
            epsilon=epsilon,
        )
        wrong = _functions().kln_gpu_launch(ctypes.byref(launch))
        if wrong is not None and launch.array >= 0:
            raise ValueError(
                f"{ARRAYS[launch.array]}: expected an array in the memory of "
                f"GPU {device}, where the launch is. Received one that is "
                "elsewhere."
            )
        _raise(f"{plan.kernel} on GPU {device}", wrong)

    def _plan(
        self, cell: str, backward: bool, units: int, format: str, device: int
    ) -> Plan | str:
        if not 0 <= device < self.devices:
            return f"there is no GPU {device}."
        of = self.limits(device)
        if of.architecture < "sm_80" and len(of.architecture) < 6:
            return f"GPU {device} is {of.architecture}: sm_80 is needed."
        if units > MOST_UNITS:
            return f"units: at most {MOST_UNITS} fit. Received: {units}."
        if self._images is None:
            by, reason = nvrtc.compiler(self.cuda)
            if by is None:
                return str(reason)
            number = int(of.architecture.strip("sm_a"))
            if number not in by.architectures:
                version = ".".join(map(str, by.version))
                return f"NVRTC {version} does not know {of.architecture}."
        for plan in plans(cell, backward, units, format, of):
            groups = ctypes.c_int32()
            launch = self._launch(plan, device, 0)
            wrong = _functions().kln_gpu_groups(
                ctypes.byref(launch), ctypes.byref(groups)
            )
            _raise(f"{plan.kernel} on GPU {device}", wrong)
            if groups.value > 0:
                return plan
        return (
            f"units: {units} in {format} do not fit GPU {device} "
            f"({of.architecture}, {of.shared_bytes} bytes of shared memory)."
        )

    def _launch(self, plan: Plan, device: int, stream: int) -> _Launch:
        return _Launch(
            shape=Shape(
                kernel=CELLS[plan.cell] + 2 * plan.backward,
                units=plan.units,
                blocks=plan.blocks,
                kept=plan.kept,
                format=FORMATS[plan.format],
                cluster=plan.cluster,
                threads=plan.threads,
                shared_bytes=plan.shared_bytes,
                box_bytes=plan.box_bytes,
            ),
            device=device,
            array=-1,
            kernel=self._kernel(plan, device),
            stream=stream,
        )

    def _kernel(self, plan: Plan, device: int) -> ctypes.c_void_p:
        architecture = self.limits(device).architecture
        key = (plan.kernel, architecture)
        with self._lock:
            if key not in self._kernels:
                image = self._image(*key)
                kernel = ctypes.c_void_p()
                wrong = _functions().kln_gpu_load(
                    image.cubin, image.name.encode(), ctypes.byref(kernel)
                )
                _raise(f"loading {plan.kernel} for GPU {device}", wrong)
                self._kernels[key] = kernel
            return self._kernels[key]

    def _image(self, kernel: str, architecture: str) -> nvrtc.Image:
        if self._images is not None:
            return self._images(kernel, architecture)
        by, reason = nvrtc.compiler(self.cuda)
        if by is None:
            raise RuntimeError(reason)
        return nvrtc.image(by, kernel, architecture)

    def _number(self, function: str, *arguments: int) -> int:
        value = ctypes.c_int()
        code = getattr(self._driver, function)(ctypes.byref(value), *arguments)
        self._check(f"answers {function}", code)
        return value.value

    def _check(self, what: str, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(text))
            said = (text.value or b"without a word").decode()
            raise RuntimeError(f"the CUDA driver {what} with {code} ({said}).")


def _raise(what: str, wrong: bytes | None) -> None:
    if wrong is not None:
        kind = MemoryError if wrong == b"out of memory" else RuntimeError
        raise kind(f"{what}: {wrong.decode()}.")


@functools.cache
def _opened() -> tuple[Gpu | None, str | None]:
    try:
        return Gpu(), None
    except RuntimeError as error:
        return None, str(error)


def unsupported_reason() -> str | None:
    """None, or the sentence that says why no GPU is used here."""
    gpu, reason = _opened()
    if gpu is not None and gpu.devices == 0:
        return "there is no GPU."
    return reason


def gpu() -> Gpu:
    """The machine's driver.

    Raises:
        RuntimeError: with the reason, where it cannot be used.
    """
    opened, reason = _opened()
    if opened is None:
        raise RuntimeError(f"GPUs cannot be used: {reason}")
    return opened
