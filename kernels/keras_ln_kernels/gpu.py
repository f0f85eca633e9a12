"""Recurrent layers over whole sequences on an NVIDIA GPU, in one launch.

For bindings to tensors: arrays are addresses. src/cuda/sequence.h describes
them, and a caller's computations around a launch.
"""

import ctypes
import functools
import threading
import warnings
from collections.abc import Mapping
from typing import Any

from keras_ln_kernels import nvrtc
from keras_ln_kernels.gpu_plan import (
    FORMATS,
    MOST_UNITS,
    Limits,
    Plan,
    limits,
    plans,
    wider,
)
from keras_ln_kernels.gpu_structs import (
    ARRAYS,
    Launch,
    Sequence,
    Shape,
    functions,
)

# Of a CUDA driver: src/gpu.cc takes these, in this order.
_FUNCTIONS = (
    *("cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction"),
    *("cuFuncSetAttribute", "cuOccupancyMaxActiveClusters"),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    *("cuLaunchKernelEx", "cuMemsetD32Async", "cuGetErrorString"),
    *("cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"),
    *("cuDeviceGetAttribute", "cuPointerGetAttribute"),
)
# CUdevice_attribute.
_SHARED_BYTES, _MAJOR, _MINOR, _COOPERATIVE, _CLUSTERS = 97, 75, 76, 95, 120
PROCESSORS = 16


class LaunchError(RuntimeError):
    """An error of a launch, with the driver's number of it."""

    code = 0


class Gpu:
    """A CUDA driver with its devices, and the kernels loaded by it.

    Raises:
        RuntimeError: with the reason, if it cannot be used.
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
            minor = version % 1000 // 10
            raise RuntimeError(
                f"the CUDA driver is for CUDA {self.cuda}.{minor}: 12.0 or "
                "newer is needed."
            )
        addresses = [
            ctypes.cast(getattr(self._driver, name), ctypes.c_void_p).value
            for name in _FUNCTIONS
        ]
        functions().kln_gpu_use_driver(
            (ctypes.c_void_p * len(addresses))(*addresses)
        )
        self.devices = self._number("cuDeviceGetCount")
        self._limits: dict[int, Limits] = {}
        self._kernels: dict[tuple[str, str], ctypes.c_void_p] = {}
        self._chosen: dict[Any, Plan | str] = {}
        self._at_once: dict[tuple[Plan, int], int] = {}
        self._lock = threading.RLock()

    def limits(self, device: int) -> Limits:
        """The limits of a device."""
        if device not in self._limits:
            number = functools.partial(self._number, "cuDeviceGetAttribute")
            kinds = (_MAJOR, _MINOR, _SHARED_BYTES, _CLUSTERS, _COOPERATIVE)
            found = limits(*(number(kind, device) for kind in kinds))
            self._limits[device] = found
        return self._limits[device]

    def facts(self, device: int) -> dict[str, Any]:
        """The name and numbers of a device, and the driver's CUDA."""
        name = ctypes.create_string_buffer(128)
        code = self._driver.cuDeviceGetName(name, len(name), device)
        self._check("answers cuDeviceGetName", code)
        of = self.limits(device)
        count = self._number("cuDeviceGetAttribute", PROCESSORS, device)
        return {
            "gpu": name.value.decode(errors="replace"),
            "capability": of.capability,
            "processors": count,
            "shared_bytes": of.shared_bytes,
            "cuda": self._number("cuDriverGetVersion"),
        }

    def reason(self, device: int) -> str | None:
        """The sentence that says why a device runs no kernel, or None."""
        if not 0 <= device < self.devices:
            return f"there is no GPU {device}."
        of = self.limits(device)
        if of.capability < 80:
            return f"GPU {device} is {of.architecture}: sm_80 is needed."
        if self._images is None:
            by, reason = nvrtc.compiler(self.cuda)
            if by is None:
                return str(reason)
            if of.capability not in by.architectures:
                version = ".".join(map(str, by.version))
                return f"NVRTC {version} does not know {of.architecture}."
        return None

    def plan(
        self,
        cell: str,
        backward: bool,
        units: int,
        format: str,
        device: int,
        batch: int = 1,
    ) -> Plan | str:
        """How a device runs a kernel, or the sentence that says why not.

        Groups take 16 rows if a batch would need more groups of 8 than run at
        once: those that wait begin when others are through all steps, and a
        step of twice the rows takes less than twice the time. The first call
        compiles and loads.
        """
        key: Any = (cell, backward, units, format, device)
        with self._lock:
            if key not in self._chosen:
                self._chosen[key] = self._plan(*key)
            plan = self._chosen[key]
            if isinstance(plan, str) or batch <= self.at_once(plan, device):
                return plan
            key = (plan, device)
            if key not in self._chosen:
                more = wider(plan, self.limits(device))
                fits = more is not None and self.groups(more, device) > 0
                self._chosen[key] = more if more and fits else plan
            return self._chosen[key]

    def at_once(self, plan: Plan, device: int) -> int:
        """How many rows of a batch run at once."""
        key = (plan, device)
        if key not in self._at_once:
            self._at_once[key] = plan.rows * self.groups(plan, device)
        return self._at_once[key]

    def workspace(
        self, plan: Plan, device: int, batch: int | None = None
    ) -> dict[str, int]:
        """Bytes of the arrays "exchange" and "counters", if it takes them.

        They need no values. Without `batch` they are for any.
        """
        return plan.workspace(self._meeting(plan, device, batch))

    def keep(self, plan: Plan, device: int) -> None:
        """Lets programs of XLA's find a kernel by its plan's numbers.

        Raises:
            RuntimeError: if there are too many.
        """
        launch = self._launch(plan, device, 0)
        _raise(plan.kernel, functions().kln_gpu_keep(ctypes.byref(launch)))

    def groups(self, plan: Plan, device: int) -> int:
        """How many groups of blocks run at once; 0 if none fits."""
        groups, launch = ctypes.c_int32(), self._launch(plan, device, 0)
        wrong = functions().kln_gpu_groups(
            ctypes.byref(launch), ctypes.byref(groups)
        )
        _raise(f"{plan.kernel} on GPU {device}", wrong)
        return groups.value

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
        of the shapes that src/cuda/sequence.h and `workspace` tell, and alive
        until the stream is through.

        Raises:
            ValueError: without steps, and for an array that is not in the
                device's memory.
            MemoryError: if the driver has none left.
            LaunchError: for other errors of the driver.
            RuntimeError: for errors of the compiler.
        """
        if steps < 1:
            raise ValueError(f"steps: expected at least 1. Received: {steps}.")
        if batch == 0:
            return
        launch = self._launch(plan, device, stream)
        launch.groups = self._meeting(plan, device, batch)
        launch.sequence = Sequence(
            **arrays,
            batch=batch,
            steps=steps,
            go_backwards=go_backwards,
            epsilon=epsilon,
        )
        wrong = functions().kln_gpu_launch(ctypes.byref(launch))
        if wrong is not None and launch.array >= 0:
            raise ValueError(
                f"{ARRAYS[launch.array]}: expected an array in the memory of "
                f"GPU {device}, as for the launch. Received an array in other "
                "memory."
            )
        if launch.array == -2:
            _warn_of_memory()
        _raise(f"{plan.kernel} on GPU {device}", wrong, launch.code)

    def _meeting(self, plan: Plan, device: int, batch: int | None) -> int:
        """How many groups meet in global memory at once."""
        at_once = self.at_once(plan, device)
        rows = at_once if batch is None else min(batch, at_once)
        return -(-rows // plan.rows)

    def _plan(
        self, cell: str, backward: bool, units: int, format: str, device: int
    ) -> Plan | str:
        wrong = self.reason(device)
        if wrong is not None:
            return wrong
        if units > MOST_UNITS:
            return f"units: at most {MOST_UNITS} fit. Received: {units}."
        of = self.limits(device)
        for plan in plans(cell, backward, units, format, of):
            if self.groups(plan, device) > 0:
                return plan
        return (
            f"units: {units} in {format} do not fit GPU {device} "
            f"({of.architecture}, {of.shared_bytes} bytes of shared memory)."
        )

    def _launch(self, plan: Plan, device: int, stream: int) -> Launch:
        return Launch(
            shape=Shape(
                kernel=plan.number,
                units=plan.units,
                blocks=plan.blocks,
                rows=plan.rows,
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
                wrong = functions().kln_gpu_load(
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


def _raise(what: str, wrong: bytes | None, code: int = 0) -> None:
    if wrong is None:
        return
    sentence = f"{what}: {wrong.decode()}."
    if wrong == b"out of memory":
        raise MemoryError(sentence)
    error = LaunchError(sentence)
    error.code = code
    raise error


@functools.cache
def _warn_of_memory() -> None:
    warnings.warn(
        "The CUDA driver does not say which GPU an array's memory is of: GPU "
        "kernels run without that check.",
        stacklevel=2,
    )


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
        RuntimeError: with the reason, if it cannot be used.
    """
    opened, reason = _opened()
    if opened is None:
        raise RuntimeError(f"GPUs cannot be used: {reason}")
    return opened
