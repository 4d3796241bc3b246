"""Tokens a second of Grain's DataLoader on headerless uint32 files, with the work of MaxText's olmo_grain input.

    loader_grain.py FOLDER SECONDS     prints one JSON object; needs `grain` and `numpy`
"""

import importlib.metadata
import json
import pathlib
import sys
import time

import grain.python as grain
import numpy as np

LENGTH = 8192
BATCH = 64


class TokenFiles:
    """Instance i: tokens [i*LENGTH, (i+1)*LENGTH) of the files in order, from their maps."""

    def __init__(self, folder):
        self.paths = sorted(pathlib.Path(folder).glob("*.npy"))
        self.counts = [path.stat().st_size // 4 // LENGTH for path in self.paths]
        self.ends = np.cumsum(self.counts)
        self.maps = {}

    def __len__(self):
        return int(self.ends[-1])

    def __getitem__(self, index):
        file = int(np.searchsorted(self.ends, index, side="right"))
        if file not in self.maps:
            self.maps[file] = np.memmap(self.paths[file], dtype="<u4", mode="r")
        start = (index - int(self.ends[file]) + self.counts[file]) * LENGTH
        return {"tokens": np.array(self.maps[file][start : start + LENGTH])}


class Shift(grain.MapTransform):
    def map(self, element):
        tokens = element["tokens"].astype(np.int32)
        targets = np.zeros_like(tokens)
        targets[:-1] = tokens[1:]
        mask = np.ones(LENGTH, dtype=np.uint8)
        mask[-1] = 0
        return {"tokens": tokens, "targets": targets, "loss_mask": mask}


def measure(folder, workers, seconds):
    source = TokenFiles(folder)
    loader = grain.DataLoader(
        data_source=source,
        sampler=grain.IndexSampler(len(source), grain.NoSharding(), shuffle=True, seed=1, num_epochs=None),
        operations=[Shift(), grain.Batch(BATCH, drop_remainder=True)],
        worker_count=workers,
    )
    batches = iter(loader)
    first = next(batches)
    assert first["tokens"].shape == (BATCH, LENGTH), first["tokens"].shape
    assert (first["targets"][:, :-1] == first["tokens"][:, 1:]).all()
    for _ in range(4):  # workers are up
        next(batches)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        next(batches)
        count += 1
    return count * BATCH * LENGTH / (time.perf_counter() - start)


if __name__ == "__main__":
    rates = {workers: measure(sys.argv[1], workers, float(sys.argv[2])) for workers in (0, 1, 2)}
    print(json.dumps({"system": "grain", "version": importlib.metadata.version("grain"),
                      "tokens_per_s": rates, "best": max(rates.values())}))
