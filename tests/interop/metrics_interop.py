#!/usr/bin/env python3
"""Event files against TensorBoard itself, read as its server reads them.

    metrics_interop.py TOOL ENVIRONMENT     run the test; exit code 77 if the packages cannot be had

TOOL is the program of metrics_tool.cc. ENVIRONMENT is a folder for a virtual environment, made on first use with
the versions below; your pip configuration says where they come from.
"""

import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

from environment import run_inside

PACKAGES = ("tensorboard==2.20.0", "setuptools==80.9.0")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("environment", type=pathlib.Path)
    args = parser.parse_args()
    code = run_inside(__file__, args.environment, PACKAGES)
    if code is not None:
        return code
    with tempfile.TemporaryDirectory() as folder:
        check_restart(args.tool, pathlib.Path(folder) / "restarted")
        check_live_reader(args.tool, pathlib.Path(folder) / "watched")
        check_second_start_at_once(args.tool, pathlib.Path(folder) / "twice")
    print("metrics_interop: TensorBoard shows each step once")
    return 0


def write(tool: str, folder: pathlib.Path, resume: int, last: int, *, die: bool = False) -> None:
    words = [tool, str(folder), str(resume), str(last), *(["die"] if die else [])]
    code = subprocess.run(words, check=False).returncode
    check_equal("exit code of the writer", code, -9 if die else 0)


def check_equal(what: str, found, wanted) -> None:
    if found != wanted:
        sys.exit(f"metrics_interop: {what}: found {found}, expected {wanted}")


def reader(folder: pathlib.Path):
    from tensorboard.backend.event_processing import event_accumulator

    return event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})


def scalars(accumulator, tag: str) -> list:
    """(step, value) as TensorBoard holds them: scalars of old writers become tensors on the way in."""
    from tensorboard.util import tensor_util

    accumulator.Reload()
    tags = accumulator.Tags()
    if tag in tags["scalars"]:
        return [(event.step, event.value) for event in accumulator.Scalars(tag)]
    return [(event.step, float(tensor_util.make_ndarray(event.tensor_proto))) for event in accumulator.Tensors(tag)]


def check_curves(what: str, accumulator, last: int) -> None:
    import numpy as np

    loss = scalars(accumulator, "train/loss")
    check_equal(f"{what}: steps", [step for step, _ in loss], [*range(1, last + 1)])
    for step, value in loss:
        check_equal(f"{what}: loss of step {step}", value, float(np.float32(8.0 / step)))
    norms = dict(scalars(accumulator, "train/grad_norm"))
    check_equal(f"{what}: NaN stays NaN", math.isnan(norms[7]), True)
    heldout = scalars(accumulator, "heldout/bible")
    check_equal(f"{what}: evaluations", [step for step, _ in heldout], [*range(10, last + 1, 10)])


def check_restart(tool: str, folder: pathlib.Path) -> None:
    """Killed at step 25 inside a record, resumed from 20, finished at 40; read when all is over."""
    write(tool, folder, 0, 25, die=True)
    check_equal("torn record is not shown", len(scalars(reader(folder), "train/loss")), 25)
    write(tool, folder, 20, 40)
    check_curves("restarted", reader(folder), 40)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    check_equal("metrics.jsonl", [line["step"] for line in lines if line["kind"] == "step"], [*range(1, 41)])
    check_records(folder)


def check_live_reader(tool: str, folder: pathlib.Path) -> None:
    """The same, watched by a reader that has seen the steps that are repeated."""
    write(tool, folder, 0, 25, die=True)
    watching = reader(folder)
    check_equal("watched: before", len(scalars(watching, "train/loss")), 25)
    write(tool, folder, 20, 40)
    check_curves("watched", watching, 40)


def check_second_start_at_once(tool: str, folder: pathlib.Path) -> None:
    """Starts within one second: files must be read in the order of the starts."""
    for resume, last in ((0, 12), (10, 22), (20, 32), (30, 40)):
        write(tool, folder, resume, last)
    check_curves("four starts", reader(folder), 40)


def check_records(folder: pathlib.Path) -> None:
    """Framing, checksums and fields by TensorBoard's own reader, which stops at the first that is wrong."""
    from tensorboard.backend.event_processing import event_file_loader

    for path in sorted(folder.glob("events.out.tfevents.*")):
        events = [*event_file_loader.LegacyEventFileLoader(str(path)).Load()]
        check_equal(f"{path.name}: version", events[0].file_version, "brain.Event:2")
        again = b"".join(frame(event.SerializeToString()) for event in events)
        check_equal(f"{path.name}: no byte is unread", again == path.read_bytes(), True)


def frame(payload: bytes) -> bytes:
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    length = struct.pack("<Q", len(payload))
    crcs = [struct.pack("<I", masked_crc32c(part)) for part in (length, payload)]
    return length + crcs[0] + payload + crcs[1]


if __name__ == "__main__":
    sys.exit(main())
