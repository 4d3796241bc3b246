#!/usr/bin/env python3
"""Checkpoints against the real packages: zarr-python, TensorStore and Orbax read ours, we read theirs.

    checkpoint_interop.py TOOL ENVIRONMENT              run the test; exit code 77 if the packages cannot be had
    checkpoint_interop.py TOOL ENVIRONMENT --fixtures DIR    write the small arrays of src/checkpoint/testdata/zarr

TOOL is the program of checkpoint_tool.cc. ENVIRONMENT is a folder for a virtual environment, made on first use with
the versions below; your pip configuration says where they come from.
"""

import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

from environment import run_inside

PACKAGES = ("zarr==3.1.6", "tensorstore==0.1.86", "orbax-checkpoint==0.12.8", "ml_dtypes==0.6.0", "jax==0.10.2")

NAMES = {"bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
         "uint32": "u32", "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("environment", type=pathlib.Path)
    parser.add_argument("--fixtures", type=pathlib.Path)
    args = parser.parse_args()
    code = run_inside(__file__, args.environment, PACKAGES)
    if code is not None:
        return code
    os.environ["JAX_PLATFORMS"] = "cpu"
    if args.fixtures:
        write_theirs(args.fixtures)
        for name in ("commit_success.txt", "_CHECKPOINT_METADATA", "array_metadatas/process_0"):
            (args.fixtures / "orbax" / name).unlink()  # times and paths of one machine
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("PLAIN", "ZSTD"):
            check_ours(args.tool, pathlib.Path(folder) / f"ours-{kind}", kind)
        check_theirs(args.tool, pathlib.Path(folder) / "theirs")
    print("checkpoint_interop: zarr-python, TensorStore and Orbax agree with us both ways")
    return 0


def expected(dtype: str, shape: tuple):
    import ml_dtypes
    import numpy as np

    count = int(np.prod(shape))
    values = np.arange(count) % (2 if dtype == "bool" else 100)
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).reshape(shape)


def our_arrays() -> dict:
    arrays = {f"type.{short}": expected(long, (3, 5)) for long, short in NAMES.items()}
    arrays["model.embed_tokens.weight"] = expected("float32", (1031, 2048))
    arrays["exp_avg.model.embed_tokens.weight"] = expected("float32", (1031, 2048))
    arrays["step"] = expected("int32", ())
    arrays["sharded"] = expected("bfloat16", (10, 6))
    return arrays


def check_equal(what: str, found, wanted) -> None:
    import numpy as np

    found = np.asarray(found)
    if found.dtype != wanted.dtype or found.shape != wanted.shape or found.tobytes() != wanted.tobytes():
        raise SystemExit(f"{what}: {found.dtype}{found.shape} differs from {wanted.dtype}{wanted.shape}")


def check_ours(tool: str, path: pathlib.Path, kind: str) -> None:
    import jax
    import ml_dtypes  # noqa: F401  registers bfloat16
    import orbax.checkpoint as ocp
    import tensorstore as ts
    import zarr

    subprocess.run([tool, "write", path, kind], check=True)
    arrays = our_arrays()
    for name, wanted in arrays.items():
        store = ts.open({"driver": "zarr3", "kvstore": f"file://{path}/{name}"}, read=True).result()
        check_equal(f"{kind} TensorStore {name}", store.read().result(), wanted)
        if wanted.dtype.name != "bfloat16":  # zarr-python 3.1 has no such type
            check_equal(f"{kind} zarr-python {name}", zarr.open_array(path / name, mode="r")[...], wanted)
    # As one PyTree, with nothing told about it.
    restored = ocp.PyTreeCheckpointer().restore(path)
    if sorted(restored) != sorted(arrays):
        raise SystemExit(f"{kind} Orbax: {sorted(restored)}")
    for name, wanted in arrays.items():
        check_equal(f"{kind} Orbax {name}", restored[name], wanted)
    # And onto a device, as a trainer would.
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    arguments = {name: ocp.ArrayRestoreArgs(restore_type=jax.Array, sharding=sharding) for name in arrays}
    restored = ocp.PyTreeCheckpointer().restore(path, restore_args=arguments)
    for name, wanted in arrays.items():
        if not isinstance(restored[name], jax.Array):
            raise SystemExit(f"{kind} Orbax {name}: {type(restored[name])}")
        if wanted.dtype.itemsize < 8:  # JAX narrows 64-bit numbers
            check_equal(f"{kind} Orbax on a device {name}", restored[name], wanted)


def write_theirs(path: pathlib.Path) -> dict:
    """Arrays as each package writes them by itself, and with the codecs that we name; name -> values."""
    import jax.numpy as jnp
    import numpy as np
    import orbax.checkpoint as ocp
    import tensorstore as ts
    import zarr

    path.mkdir(parents=True)
    wanted = {}
    tree = {
        "params": {"params": {"decoder": {"wi": expected("float32", (6, 4)), "scale": expected("bfloat16", (7,))}}},
        "step": expected("int32", ()),
        "zeros": np.zeros((3, 3), np.float32),
    }
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=True))
    checkpointer.save((path / "orbax").resolve(), {
        "params": {"params": {"decoder": {name: jnp.asarray(v) for name, v in tree["params"]["params"]["decoder"].items()}}},
        "step": jnp.asarray(tree["step"]), "zeros": jnp.asarray(tree["zeros"])})  # fmt: skip
    checkpointer.close()
    for name, values in tree["params"]["params"]["decoder"].items():
        wanted[f"orbax/params.params.decoder.{name}"] = values
    wanted["orbax/step"] = tree["step"]
    wanted["orbax/zeros"] = tree["zeros"]

    def with_zarr(name: str, values, **options) -> None:
        zarr.create_array(path / name, shape=values.shape, dtype=values.dtype, **options)[...] = values
        wanted[name] = values

    for dtype in NAMES:
        if dtype != "bfloat16":
            with_zarr(f"zarr.{dtype}", expected(dtype, (3, 5)), chunks=(2, 2))
    with_zarr("zarr.sharded", expected("float32", (7, 9)), chunks=(2, 4), shards=(4, 8))
    with_zarr("zarr.scalar", expected("float32", ()))
    with_zarr("zarr.dots", expected("int32", (4, 4)), chunks=(2, 2), compressors=None,
              chunk_key_encoding={"name": "default", "separator": "."})  # fmt: skip
    with_zarr("zarr.v2keys", expected("int32", (4, 4)), chunks=(2, 2), compressors=None,
              chunk_key_encoding={"name": "v2", "separator": "/"})  # fmt: skip
    # Only the first chunk is there: the rest is the fill value.
    partial = zarr.create_array(path / "zarr.partial", shape=(4, 4), chunks=(2, 2), dtype="float32", fill_value=np.inf)
    partial[:2, :2] = 1
    wanted["zarr.partial"] = partial[...]

    def with_tensorstore(name: str, values, chunk: list, codecs: list) -> None:
        spec = {"driver": "zarr3", "kvstore": f"file://{path.resolve()}/{name}", "create": True,
                "metadata": {"shape": values.shape, "data_type": values.dtype.name, "codecs": codecs,
                             "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}}}  # fmt: skip
        ts.open(spec).result()[...] = values
        wanted[name] = values

    little = {"name": "bytes", "configuration": {"endian": "little"}}
    zstd = {"name": "zstd", "configuration": {"level": 5}}
    shard = lambda inner, codecs, where: {"name": "sharding_indexed", "configuration": {  # noqa: E731
        "chunk_shape": inner, "codecs": codecs, "index_location": where}}  # fmt: skip
    with_tensorstore("ts.crc", expected("bfloat16", (5, 3)), [5, 3], [little, "crc32c"])
    with_tensorstore("ts.start", expected("float32", (8, 6)), [4, 6], [shard([2, 3], [little, "crc32c"], "start")])
    with_tensorstore("ts.zstd", expected("int64", (8, 6)), [8, 3], [shard([2, 3], [little, zstd, "crc32c"], "end")])
    with_tensorstore("ts.crc_zstd", expected("int64", (8, 6)), [8, 6], [little, "crc32c", zstd])
    return wanted


def check_theirs(tool: str, path: pathlib.Path) -> None:
    import numpy as np

    wanted = write_theirs(path)
    output = subprocess.run([tool, "read", path], check=True, capture_output=True, text=True).stdout
    found = {line.split()[0]: line.split()[1:] for line in output.splitlines()}
    if sorted(found) != sorted(wanted):
        raise SystemExit(f"arrays found {sorted(found)}, written {sorted(wanted)}")
    for name, values in wanted.items():
        shape = "[" + ",".join(map(str, values.shape)) + "]"
        line = [NAMES[values.dtype.name], shape, hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()]
        if found[name] != line:
            raise SystemExit(f"{name}: read {found[name]}, written {line}")


if __name__ == "__main__":
    sys.exit(main())
