#!/bin/bash
# Our loader and Grain's DataLoader on the same token files, in one run. Both read from page cache, shuffle,
# shift targets (the ratio counts our rows that do) and make batches of 64 x 8192.
#
#     bench/loader.sh [BUILD_DIR]      default: build; a scratch environment is made with pip
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q grain==0.2.18 numpy==2.4.6
mkdir "$work/tokens"
"$work/venv/bin/python" - "$work/tokens" <<'PY'
import sys
import numpy as np
for i in range(4):
    np.random.default_rng(i).integers(0, 100257, 1 << 25, dtype=np.uint32).tofile(f"{sys.argv[1]}/{i}.npy")
PY

ULMUS_BENCH_TOKENS=$work/tokens "$build/src/data/data_bench" --benchmark_filter=LoadBatches \
  --benchmark_format=json >"$work/ours.json" 2>"$work/ours.log" || { cat "$work/ours.log"; exit 1; }
"$work/venv/bin/python" "$root/bench/loader_grain.py" "$work/tokens" 5 >"$work/grain.json" 2>"$work/grain.log" ||
  { cat "$work/grain.log"; exit 1; }
python3 - "$work/ours.json" "$work/grain.json" <<'PY'
import json, sys
ours = json.load(open(sys.argv[1]))
grain = json.load(open(sys.argv[2]))
best = 0
for row in ours["benchmarks"]:
    threads, work = row["name"].split("/")[1:3]
    what = ("tokens, mask", "and targets", "and n-gram filter")[int(work)]
    print(f"ulmus  threads={threads} {what:<18} {row['tokens_per_s']:.3e} tokens/s, "
          f"{row['tokens_per_cpu_s']:.3e} per second of CPU")
    if work == "1":
        best = max(best, row["tokens_per_s"])
for workers, rate in grain["tokens_per_s"].items():
    print(f"grain {grain['version']} workers={workers}         {rate:.3e} tokens/s")
print(f"ratio of the best: {best / grain['best']:.1f}")
PY
