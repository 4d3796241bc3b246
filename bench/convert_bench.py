#!/usr/bin/env python3
"""Speed and memory of `ulmus convert` beside a raw copy of the same bytes, in one run.

    bench/convert_bench.py [--shape 1b|7b] [--folder FOLDER] [--rounds N] [--program FILE]
                           [--keep]

Makes a Hugging Face directory of OLMo 3 shapes with random bf16 bits, then copies it with dd (conv=fsync), converts it
to a checkpoint and back, and compares the result byte for byte. The page cache is dropped for what is read, and every
side ends with its bytes on the disk. Prints one JSON object.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys
import time

# layers, width, heads, head width, feed-forward, vocabulary
SHAPES = {"1b": (4, 2048, 16, 128, 8192, 100278), "7b": (32, 4096, 32, 128, 11008, 100278)}
SHARD_BYTES = 5_000_000_000
BLOCK_BYTES = 1 << 26


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/convert_bench"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--program", type=pathlib.Path, default=pathlib.Path("build/ulmus"))
    parser.add_argument("--keep", action="store_true", help="leave the files")
    options = parser.parse_args()
    program = options.program.resolve()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return run(options, program, folder)
    finally:
        if not options.keep:
            shutil.rmtree(folder)


def run(options: argparse.Namespace, program: pathlib.Path, folder: pathlib.Path) -> int:
    source, copy, native, back = (folder / name for name in ("hf", "copy", "ulmus", "back"))
    size = make_model(source, *SHAPES[options.shape])
    if shutil.disk_usage(folder).free < 2 * size:
        sys.exit(f"{folder}: {2 * size} bytes needed beside the model")
    rows = []
    for _ in range(options.rounds):
        for target in (copy, native, back):
            shutil.rmtree(target, ignore_errors=True)
        rows.append(measure("raw copy (dd)", size, source, copy_commands(source, copy)))
        shutil.rmtree(copy)
        rows.append(measure("hf -> ulmus", size, source, [[program, "convert", source, native]]))
        rows.append(measure("ulmus -> hf", size, native, [[program, "convert", native, back]]))
        subprocess.run(["diff", "-r", source, back], check=True)
        shutil.rmtree(back)
    best = {row["mode"]: max(r["value"] for r in rows if r["mode"] == row["mode"]) for row in rows}
    ratios = {mode: best[mode] / best["raw copy (dd)"] for mode in best if mode != "raw copy (dd)"}
    print(json.dumps({"machine": machine(), "bytes": size, "rows": rows, "ratios": ratios}, indent=2))
    return 0


def make_model(folder: pathlib.Path, layers: int, d: int, n: int, h: int, f: int, v: int) -> int:
    shapes = {"model.embed_tokens.weight": [v, d], "lm_head.weight": [v, d], "model.norm.weight": [d]}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name in "qkv":
            shapes[f"{prefix}self_attn.{name}_proj.weight"] = [n * h, d]
        shapes[f"{prefix}self_attn.o_proj.weight"] = [d, n * h]
        shapes[f"{prefix}self_attn.q_norm.weight"] = shapes[f"{prefix}self_attn.k_norm.weight"] = [n * h]
        for name in ("gate", "up"):
            shapes[f"{prefix}mlp.{name}_proj.weight"] = [f, d]
        shapes[f"{prefix}mlp.down_proj.weight"] = [d, f]
        for name in ("attention", "feedforward"):
            shapes[f"{prefix}post_{name}_layernorm.weight"] = [d]
    folder.mkdir(exist_ok=True)
    write_config(folder, layers, d, n, f, v)
    shards = split(shapes)
    total = sum(2 * count(shape) for shape in shapes.values())
    weight_map = {}
    for i, names in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors" if len(shards) > 1 else "model.safetensors"
        weight_map.update(dict.fromkeys(names, file))
        write_shard(folder / file, {name: shapes[name] for name in names})
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    return total


def count(shape: list[int]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def split(shapes: dict[str, list[int]]) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    size = 0
    for name in sorted(shapes):
        tensor = 2 * count(shapes[name])
        if shards[-1] and size + tensor > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += tensor
    return shards


def write_shard(path: pathlib.Path, shapes: dict[str, list[int]]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * count(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        block = os.urandom(min(end, BLOCK_BYTES))
        while end > 0:
            file.write(block[:end])
            end -= min(end, len(block))
        os.fsync(file.fileno())


def write_config(folder: pathlib.Path, layers: int, d: int, n: int, f: int, v: int) -> None:
    kinds = ["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(layers)]
    config = {
        "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "hidden_size": d, "intermediate_size": f,
        "num_hidden_layers": layers, "num_attention_heads": n, "num_key_value_heads": n, "vocab_size": v,
        "max_position_embeddings": 8192, "rope_theta": 500000, "rope_scaling": None, "layer_types": kinds,
        "sliding_window": 4096, "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": False,
        "attention_dropout": 0.0, "tie_word_embeddings": False, "initializer_range": 0.02, "pad_token_id": 100277,
        "bos_token_id": None, "eos_token_id": 100257, "torch_dtype": "bfloat16", "use_cache": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def copy_commands(source: pathlib.Path, target: pathlib.Path) -> list[list[object]]:
    target.mkdir()
    return [
        ["dd", f"if={path}", f"of={target / path.name}", "bs=8M", "conv=fsync", "status=none"]
        for path in sorted(source.iterdir())
    ]


def measure(mode: str, size: int, reads: pathlib.Path, commands: list[list[object]]) -> dict[str, object]:
    drop_cache(reads)
    start = time.monotonic()
    peak = 0
    for command in commands:
        child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            sys.exit(f"{command}: status {status}")
        peak = max(peak, usage.ru_maxrss * 1024)
    seconds = time.monotonic() - start
    return {"system": "ulmus" if "->" in mode else "dd", "mode": mode, "dtype": "bf16", "value": size / seconds,
            "unit": "bytes/s", "seconds": seconds, "peak_rss_bytes": peak}  # fmt: skip


def drop_cache(folder: pathlib.Path) -> None:
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def machine() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} CPUs"


if __name__ == "__main__":
    sys.exit(main())
