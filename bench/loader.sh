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

# Both sides take turns, so that other work on the machine slows both.
rounds=${ROUNDS:-5}
for ((round = 0; round < rounds; ++round)); do
  ULMUS_BENCH_TOKENS=$work/tokens "$build/src/data/data_bench" --benchmark_filter='LoadBatches/2/[01]' \
    --benchmark_format=json >"$work/ours.$round.json" 2>"$work/log" || { cat "$work/log"; exit 1; }
  "$work/venv/bin/python" "$root/bench/loader_grain.py" "$work/tokens" 3 >"$work/grain.$round.json" 2>"$work/log" ||
    { cat "$work/log"; exit 1; }
done
python3 - "$work" "$rounds" <<'PY'
import collections, json, statistics, sys
work, rounds = sys.argv[1], int(sys.argv[2])
rates = collections.defaultdict(list)
ratios = []
for i in range(rounds):
    ours = json.load(open(f"{work}/ours.{i}.json"))
    grain = json.load(open(f"{work}/grain.{i}.json"))
    for row in ours["benchmarks"]:
        threads, kind = row["name"].split("/")[1:3]
        what = ("tokens, mask", "tokens, mask, targets")[int(kind)]
        rates[f"ulmus, {threads} threads: {what}"].append(row["tokens_per_s"])
        rates[f"  a second of CPU time: {what}"].append(row["tokens_per_cpu_s"])
        if kind == "1":
            ratios.append(row["tokens_per_s"] / grain["best"])
    for workers, rate in grain["tokens_per_s"].items():
        rates[f"grain {grain['version']}, {workers} workers: the same"].append(rate)
print(f"tokens/s, median of {rounds} rounds (least, most)")
for name, values in rates.items():
    print(f"{name:<48} {statistics.median(values):.3e} ({min(values):.3e}, {max(values):.3e})")
print(f"ratio to the best of Grain: median {statistics.median(ratios):.1f} ({min(ratios):.1f}, {max(ratios):.1f})")
PY
