#!/usr/bin/env python3
"""Writes the Parquet files of tokenize_parquet_test.cc. Needs the package pyarrow (they were made with 26.0.1).

    src/data/testdata/make_parquet.py
"""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 100
WRITERS = {
    "snappy_dictionary": {"compression": "snappy", "data_page_version": "1.0"},
    "zstd_small_pages": {"compression": "zstd", "use_dictionary": False, "data_page_size": 300, "write_batch_size": 8},
    "gzip_delta_length": {"compression": "gzip", "use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
    "lz4_delta": {"compression": "lz4", "use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}, "data_page_version": "2.0"},
    "brotli": {"compression": "brotli"},
    "plain_checksums": {"compression": "none", "use_dictionary": False, "write_page_checksum": True},
}


def text(row: int) -> str:
    return f"Row {row}: " + "word " * (row * 7 % 40) + ("\u00e9\u5317\u4eac" if row % 5 == 0 else "")


def main() -> None:
    folder = pathlib.Path(__file__).parent / "parquet"
    folder.mkdir(exist_ok=True)
    for name, options in WRITERS.items():
        pq.write_table(pa.table({"id": range(ROWS), "text": [text(row) for row in range(ROWS)]}), folder / f"{name}.parquet", row_group_size=30, write_statistics=False, **options)
    table = pa.table({
        "id": [1, 2, 3, 4],
        "text": ["one", None, "", "four"],
        "large": pa.array(["one", "two", "three", "four"], pa.large_string()),
        "kind": pa.array(["a", "b", "a", "b"]).dictionary_encode(),
        "meta": [{"text": f"inner {i}"} for i in range(4)],
        "tags": [["x"]] * 4,
        "raw": pa.array([b"\xff"] * 4, pa.binary()),
        "broken": pa.array([b"ok", b"\xff\xfe", b"ok", b"ok"], pa.binary()).view(pa.string()),
    })  # fmt: skip
    pq.write_table(table, folder / "columns.parquet", write_statistics=False)
    pq.write_table(table.slice(0, 0), folder / "empty.parquet", write_statistics=False)


if __name__ == "__main__":
    main()
