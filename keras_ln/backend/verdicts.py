"""The results of `python -m keras_ln gpu` on this GPU: its verdicts.

A file is for one model of GPU and one set of software, its "facts". Its state
is running (the check has begun, or died), passed, failed or withdrawn (an error
came later). An entry is for a cell, a format of products' operands, a number of
units, and training or inference; times are microseconds a step and a call.
"""

import functools
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import keras

SCHEMA, MARGIN = 1, 0.9
VARIABLE = "KERAS_LN_GPU_VERDICTS"  # Folders, of which the first is written.
COMMAND = "python -m keras_ln gpu"
STATES = ("running", "passed", "failed", "withdrawn")
_PACKAGE = Path(__file__).parents[1]
_SHIPPED = _PACKAGE / "gpu_verdicts"  # Trusted as the code is.
_ENTRY = {"cell": str, "format": str, "units": int, "training": bool}
_ENTRY |= {"rows": int, "error": float, "limit": float}
# `us` is [a step, a call], with up to `rows` rows, which run at once;
# `other_us` is [rows, a step, a call] for some numbers of rows.
_ENTRY |= {"us": list, "other": str, "other_us": list}
_known: dict = {}  # By device: the content and a note.


def folders():
    """The folders that are read, in order."""
    from keras_ln_kernels import nvrtc

    given = os.environ.get(VARIABLE, "").split(os.pathsep)
    found = [Path(path) for path in given if path]
    usual = nvrtc.folder(), Path(sys.prefix, "share", "keras_ln")
    return [*(found or [path / "verdicts" for path in usual]), _SHIPPED]


def facts_of(device):
    """What a verdict depends on: any difference is another file."""
    from keras_ln_kernels import gpu, gpu_plan, nvrtc

    opened = gpu.gpu()
    by, _ = nvrtc.compiler(opened.cuda)
    sources = [*nvrtc.headers().values()]
    sources.append(Path(gpu_plan.__file__).read_bytes())
    sources.append((_PACKAGE / "engine" / "gpu.py").read_bytes())
    framework = keras.backend.backend()
    # Its distribution may have another name: tensorflow-cpu.
    version = sys.modules[framework].__version__.split(".")
    return opened.facts(device) | {
        "driver": _branch(),
        "nvrtc": list(by.version) if by else [],
        "sources": hashlib.sha256(b"\0".join(sources)).hexdigest(),
        "framework": f"{framework} {'.'.join(version[:2])}",
    }


def _branch():
    try:
        text = Path("/proc/driver/nvidia/version").read_text("utf-8")
    except OSError:
        return ""
    found = re.search(r" (\d+)\.\d+", text)
    return found[1] if found else ""


def path_in(folder, facts):
    """The file of such facts."""
    text = json.dumps(facts, sort_keys=True)
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _checked(text, facts):
    found = json.loads(text)
    if type(found) is not dict or found.get("schema") != SCHEMA:
        raise ValueError("it has another schema")
    if found["facts"] != facts or found["state"] not in STATES:
        raise ValueError("it is about something else")
    for entry in found["entries"]:
        if {name: type(value) for name, value in entry.items()} != _ENTRY:
            raise ValueError("an entry has other fields")
        points = [[1, *entry["us"]], *entry["other_us"]]
        if len(points) < 2 or any(len(p) != 3 for p in points):
            raise ValueError("an entry has other times")
        if any(type(n) not in (int, float) for n in sum(points, [])):
            raise ValueError("an entry has other times")
    return {**found, "said": str(found["said"])}


def read(facts):
    """The content or None, and a note on the files that were passed over."""
    from keras_ln_kernels import nvrtc

    note = ""
    for folder in folders():
        path = path_in(folder, facts)
        try:
            if folder != _SHIPPED and not nvrtc.trusted(path):
                raise ValueError("others may write it, or have it")
            return _checked(path.read_text("utf-8"), facts), note
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, TypeError, LookupError) as error:
            note += f" {path} is passed over: {error}."
        except (AttributeError, RecursionError):
            note += f" {path} is passed over: it is no verdict."
    return None, note


def write(facts, state, entries, said):
    """The file, whole or not at all; `OSError` if it cannot be written."""
    path = path_in(folders()[0], facts)
    content = {"schema": SCHEMA, "facts": facts, "state": state, "said": said}
    path.parent.mkdir(0o755, parents=True, exist_ok=True)
    number, beside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump(content | {"entries": entries}, file, indent=1)
        os.replace(beside, path)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise
    return path


def _of(device):
    if device not in _known:
        # The facts take the time of loading NVRTC.
        some = any(folder.is_dir() for folder in folders())
        _known[device] = read(facts_of(device)) if some else (None, "")
    return _known[device]


def reason_of_state(device):
    """Why no GPU kernel runs on the device, or None."""
    found, note = _of(device)
    if found is None:
        return (
            "The GPU kernels were not verified on this GPU: "
            f"`{COMMAND}` verifies them in some minutes.{note}"
        )
    if found["state"] == "passed":
        return None
    word = {"running": "did not end"}.get(found["state"], found["state"])
    return (
        f"The check of the GPU kernels on this GPU {word}: {found['said']} "
        f"`{COMMAND}` repeats it."
    )


def said(device):
    """What the check said of the device, if the kernels run there."""
    return (_of(device)[0] or {"said": "not checked on this GPU"})["said"]


def reason(device, cell, format, units, training, rows=None, steps=None):
    """Why no GPU kernel runs for such a batch, or None."""
    wrong = reason_of_state(device)
    if wrong is not None:
        return wrong
    key = (cell, format, units, training)
    found = [e for e in _of(device)[0]["entries"] if _key(e) == key]
    if not found:
        return (
            f"{units} units in {format} were not verified on this GPU: "
            f"`{COMMAND} --units {units}` verifies them."
        )
    entry = found[-1]
    if not entry["error"] <= entry["limit"]:
        return (
            f"GPU kernels of {units} units in {format} were wrong on this GPU: "
            f"an error of {entry['error']:.1e}."
        )
    ours, other = times(entry, rows or entry["rows"], steps or 100)
    if ours <= MARGIN * other:
        return None
    return (
        f"The implementation {entry['other']!r} is faster on this GPU for this "
        f"batch: {other:.3g} us a step, the GPU kernels take {ours:.3g}."
    )


def _key(entry):
    return tuple(entry[n] for n in ("cell", "format", "units", "training"))


def merged(entries, new):
    """The entries, with the new ones in place of equal old ones."""
    keys = {_key(entry) for entry in new}
    return [e for e in entries if _key(e) not in keys] + new


def times(entry, rows, steps):
    """Microseconds a step, with its share of the call: ours, the other's."""
    step, call = entry["us"]
    points = entry["other_us"]
    pairs = [*itertools.pairwise(points)] or [(points[0], points[0])]
    low, high = next((p for p in pairs if rows <= p[1][0]), pairs[-1])
    share = max(0.0, (rows - low[0]) / max(high[0] - low[0], 1))
    other = [
        a + share * (b - a) for a, b in zip(low[1:], high[1:], strict=True)
    ]
    ours = -(-rows // entry["rows"]) * step + call / steps
    return ours, other[0] + other[1] / steps


def withdraw(device, error):
    """After an error that ends the context, none runs until a new check."""
    found, note = _known.get(device, (None, ""))
    if found is None or found["state"] != "passed":
        return
    said = f"a launch failed ({error})"
    _known[device] = {**found, "state": "withdrawn", "said": said}, note
    try:
        write(found["facts"], "withdrawn", found["entries"], said)
    except OSError:
        return  # In this process it is withdrawn.


@functools.cache
def verify(device, format, units):
    """Runs the command for one size, unless it is running or was run."""
    options = ["--units", units, "--formats", format, "--device", device]
    subprocess.run(
        [sys.executable, *map(str, ["-m", "keras_ln", "gpu", *options])]
        + ["--missing"],
        env=os.environ | {"KERAS_LN_KERNELS": "1"},
        stdout=sys.stderr,
        check=False,
    )
    _known.pop(device, None)
