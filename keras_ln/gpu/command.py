"""`python -m keras_ln gpu`: checks the GPU kernels on this GPU, and times them.

Child processes run the checks and end in time; this process never opens CUDA.
Their verdict decides from then on whether layers use the kernels.
"""

import argparse
import contextlib
import datetime
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from typing import Any

import keras

from keras_ln import backend
from keras_ln.backend import native, verdicts
from keras_ln.gpu.child import FORMATS

CHILD = [sys.executable, "-m", "keras_ln.gpu.child"]
START, SECONDS, MOST_DEATHS = 60, 60, 2
LAYERS = {"LNLSTM": "lstm", "WNLSTM": "lstm", "LNGRU": "gru"}
UNITS = [256, 512, 400, 100, 40]
# Rows and steps; -1 row is one more than run at once. "all" are for each
# number of units, "first" for the first one.
PROBLEMS: dict[str, dict[str, dict[str, Any]]] = {
    "all": {
        "values": {"shape": (13, 20), "mask": True, "repeats": 20}
        | {"how": "beside"},
        "two waves": {"shape": (-1, 3)},
    },
    "first": {
        "one step": {"shape": (1, 1)},
        "backwards": {"shape": (5, 9), "reset": True, "backwards": True},
        "2000 steps": {"shape": (2, 2000), "gain": 0.1},
    },
    "torch": {
        "CUDA graph": {"shape": (13, 20), "how": "graph"},
        "expandable segments": {"shape": (13, 20), "expandable": True},
    },
}
# Steps to time the kernels with, and what would run otherwise.
LENGTHS, TIMES_ROWS = ((8, 512), (8, 40)), (1, 4, 16)


def problems_of(units: list[int], formats: list[str]) -> list[dict[str, Any]]:
    """All problems; those of one entry of the verdict follow each other."""
    found = []
    for number, size in enumerate(units):
        kinds = dict(PROBLEMS["all"])
        if number == 0:
            kinds |= PROBLEMS["first"]
        if number == 0 and keras.backend.backend() == "torch":
            kinds |= PROBLEMS["torch"]
        timed = {f"time, {w}": {"times": w} for w in ("training", "inference")}
        for format in formats:
            for cell in dict.fromkeys(LAYERS.values()):
                names = [n for n, c in LAYERS.items() if c == cell]
                every = [(n, w, kinds[w]) for n in names for w in kinds]
                every += [(names[0], w, timed[w]) for w in timed]
                found += [
                    {"layer": n, "cell": cell, "format": format, "what": w}
                    | {"units": size, **more}
                    for n, w, more in every
                ]
    # Those that need another child come first, and are not cut off by time.
    return sorted(found, key=lambda problem: "expandable" not in problem)


def name_of(problem: dict[str, Any]) -> str:
    """The problem, in a few words."""
    words = ("layer", "format", "units", "what")
    return ", ".join(str(problem[w]) for w in words if w in problem)


def run(
    problems: list[dict[str, Any]], environment: dict[str, str]
) -> Generator[tuple[dict[str, Any], Any], None, None]:
    """Each problem with its answer, or "hung" or "crashed -6 (...)".

    A child process prints a line of JSON for each. If it dies, a new one goes
    on with the next problem.
    """
    left, deaths = list(problems), 0
    while left and deaths < MOST_DEATHS:
        # One child for all with the same allocator.
        apart = left[0].get("expandable", False)
        some = [p for p in left if p.get("expandable", False) == apart]
        setting = "expandable_segments:True" if apart else ""
        more = {"PYTORCH_CUDA_ALLOC_CONF": setting} if apart else {}
        with tempfile.TemporaryFile() as errors:
            child: Any = subprocess.Popen(
                [*CHILD, json.dumps(some)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | environment | more,
                start_new_session=True,
            )
            try:
                for answer in _answers(child):
                    problem = some.pop(0)
                    left.remove(problem)
                    if isinstance(answer, str):
                        deaths += 1
                        errors.seek(0)
                        text = errors.read().decode(errors="replace").strip()
                        said = text.rpartition("\n")[2][-200:]
                        answer += f" ({said})" if said else ""
                    yield problem, answer
                    if not some:
                        break
            finally:
                child.stdout.close()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                try:
                    child.wait(20)
                except subprocess.TimeoutExpired:
                    deaths = MOST_DEATHS  # Not even SIGKILL ends it.


def _answers(child: Any) -> Iterator[Any]:
    """The answers of a child; the last one may be "hung" or "crashed"."""
    buffer, end = b"", time.monotonic() + START + SECONDS
    while True:
        wait = max(end - time.monotonic(), 0)
        if not select.select([child.stdout], [], [], wait)[0]:
            yield "hung"
            return
        more = os.read(child.stdout.fileno(), 65536)
        if not more:
            yield f"crashed {child.wait()}"
            return
        *lines, buffer = (buffer + more).split(b"\n")
        for line in lines:
            if line.startswith(b'{"keras_ln":'):
                yield json.loads(line)["keras_ln"]
            if line.startswith((b'{"keras_ln":', b"alive")):
                end = time.monotonic() + SECONDS


def _size(problem: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(problem[n] for n in ("cell", "format", "units"))


def entries_of(
    results: list[tuple[dict[str, Any], Any]],
) -> list[dict[str, Any]]:
    """The entries of the sizes with all problems solved."""
    groups: dict[Any, list[Any]] = {}
    for problem, answer in results:
        groups.setdefault(_size(problem), []).append((problem, answer))
    found = []
    for key, group in groups.items():
        if any(type(a) is not dict or "memory" in a for _, a in group):
            continue
        errors = [a for _, a in group if "error" in a]
        worst = max(
            errors,
            key=lambda a: (
                a["error"] / a["limit"]
                if a["error"] == a["error"]
                else float("inf")
            ),
            default=None,
        )
        for problem, answer in group:
            if worst is None or "us" not in answer:
                continue
            entry = dict(zip(("cell", "format", "units"), key, strict=True))
            entry["training"] = problem["times"] == "training"
            entry |= {n: worst[n] for n in ("error", "limit")}
            found.append(entry | answer)
    return found


def main(argv: list[str]) -> int:
    """The command; returns its exit status."""
    options = _parsed(argv)
    wrong = native.missing()
    if wrong is None and backend.gpu_said is None:
        wrong = backend.gpu_reason()
    if wrong is None:
        ((_, here),) = run([{"what": "facts"}], {native.SWITCH: "cuda"})
        wrong = here if isinstance(here, str) else here.get("reason")
    if wrong is not None:
        print(f"The GPU kernels cannot be checked here: {wrong}")
        return 2
    # A verdict is for all equal GPUs: one of each is checked.
    chosen: dict[str, int] = {}
    for device, facts in enumerate(here["facts"]):
        if options.device in (None, device) and facts is not None:
            chosen.setdefault(json.dumps(facts), device)
    if not chosen:
        said = [s for s in here["reasons"] if s] or ["no such GPU was found."]
        print(f"The GPU kernels cannot be checked here: {' '.join(said)}")
        return 2
    formats = options.formats or [here["format"], "bfloat16"]
    status = 0
    for facts, device in chosen.items():
        status = max(
            status,
            _on(json.loads(facts), device, formats, options),
            key=(0, 2, 1).index,
        )
    return status


def _parsed(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=verdicts.COMMAND, description=__doc__.partition("\n")[0]
    )
    add = parser.add_argument
    add("--units", type=int, nargs="+", help="numbers of units to check first")
    add("--formats", nargs="+", choices=FORMATS, help="formats of operands")
    add("--device", type=int, help="number of the GPU (default: one of each)")
    add("--minutes", type=float, default=5, help="time limit (default: 5)")
    add("--print", action="store_true", help="print the verdict alone")
    add("--forget", action="store_true", help="delete the verdict")
    add("--missing", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


@contextlib.contextmanager
def _locked(facts: dict[str, Any]) -> Iterator[None]:
    """A lock file, unless none can be written: one command at a time."""
    import fcntl

    path = verdicts.path_in(verdicts.folders()[0], facts).with_suffix(".lock")
    try:
        path.parent.mkdir(0o755, parents=True, exist_ok=True)
        file = path.open("w")
    except OSError:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _on(
    facts: dict[str, Any],
    device: int,
    formats: list[str],
    options: argparse.Namespace,
) -> int:
    with _locked(facts):
        before, note = verdicts.read(facts)
        if note:
            print(note.strip())
        kept = before["entries"] if before else []
        sources = facts["sources"][:8]
        print(
            f"{facts['gpu']}, CUDA {facts['cuda'] // 1000}, NVRTC "
            f"{'.'.join(map(str, facts['nvrtc']))}, {facts['framework']}; "
            f"sources {sources}"
        )
        if options.print or options.forget:
            if options.forget:
                for folder in verdicts.folders()[:-1]:
                    with contextlib.suppress(OSError):
                        verdicts.path_in(folder, facts).unlink()
            print(before["said"] if before else "No verdict.")
            _print_table(kept)
            return 0
        units = list(dict.fromkeys((options.units or []) + UNITS))
        if options.missing:
            have = {(e["format"], e["units"]) for e in kept}
            wanted = {(f, u) for f in formats for u in options.units}
            if before and (before["state"] != "passed" or wanted <= have):
                return 0
            units = options.units
        return _check(facts, device, problems_of(units, formats), kept, options)


def _check(
    facts: dict[str, Any],
    device: int,
    problems: list[dict[str, Any]],
    kept: list[dict[str, Any]],
    options: argparse.Namespace,
) -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    number = visible[device] if device < len(visible) else ""
    environment = {
        "CUDA_VISIBLE_DEVICES": number or str(device),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_ENABLE_X64": "1",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        native.SWITCH: "cuda",
    }
    for problem in problems:
        if "times" in problem:
            problem |= {"lengths": LENGTHS, "rows": TIMES_ROWS}
    _written(facts, "running", kept, f"{name_of(problems[0])} began.")
    end, results = time.monotonic() + 60 * options.minutes, []
    answers = run(problems, environment)
    with contextlib.closing(answers), contextlib.suppress(KeyboardInterrupt):
        for problem, answer in answers:
            results.append((problem, answer))
            right = isinstance(answer, dict) and (
                "us" in answer
                or answer.get("error", 1.0) <= answer.get("limit", 0.0)
            )
            word = "" if right else f": {answer}"
            text = f"{len(results)} of {len(problems)}, {name_of(problem)}"
            print(f"{text}{word}", flush=True)
            if time.monotonic() > end:
                break
    died = [f"{name_of(p)}: {a}" for p, a in results if isinstance(a, str)]
    memory = [
        a["memory"] for _, a in results if "memory" in a and type(a) is dict
    ]
    reached = {name_of(p) for p, _ in results}
    left = [p for p in problems if name_of(p) not in reached]
    # Sizes whose problems ran out of time are left out.
    new = entries_of(
        [r for r in results if not any(_size(r[0]) == _size(p) for p in left)]
    )
    entries = verdicts.merged(kept, new)
    today = datetime.date.today().isoformat()
    said = f"checked here on {today}, {len(reached)} problems"
    if died:
        said += "; " + "; ".join(died)
        print(f"No GPU kernel is used: {'; '.join(died)}.")
    else:
        _print_table(entries)
    if left:
        print(
            f"Left out: {len(problems) - len(reached)} problems, from "
            f"{name_of(left[0])} on."
        )
    _written(facts, "failed" if died else "passed", entries, f"{said}.")
    if died or any(not e["error"] <= e["limit"] for e in new):
        return 1
    if memory:
        print(f"Out of memory: {memory[0]}")
        return 2
    return 0


def _written(
    facts: dict[str, Any], state: str, entries: list[Any], said: str
) -> None:
    try:
        path = verdicts.write(facts, state, entries, said)
    except OSError as error:
        print(f"The verdict cannot be written: {error}.")
        return
    if state != "running":
        print(f"Written: {path}")


def _print_table(entries: list[dict[str, Any]]) -> None:
    print("cell  format    units  error   limit   us a step of a large batch")
    for entry in entries:
        ours, other = verdicts.times(entry, entry["rows"], 100)
        right = entry["error"] <= entry["limit"]
        use = "used" if ours <= verdicts.MARGIN * other else "slower: not used"
        print(
            f"{entry['cell']:5} {entry['format']:9} {entry['units']:5}  "
            f"{entry['error']:.1e} {entry['limit']:.1e} cuda {ours:.3g}, "
            f"{entry['other']} {other:.3g}, "
            f"{'training' if entry['training'] else 'inference'}: "
            f"{use if right else 'WRONG: not used'}"
        )
