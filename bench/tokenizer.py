#!/usr/bin/env python3
"""Single-thread encoding speed: this project, Hugging Face tokenizers and tiktoken on the same text, in one run.

    bench/tokenizer.py BENCH_BINARY TOKENIZER_JSON [--mb 12] [--rounds 5] [--text FILE]

The peers come by pip into a scratch environment, never into the build. Rounds are interleaved, the median counts, and
all three must give the same ids. Without --text the text is put together from what a Debian machine holds: prose
(licences, manuals), code (Python, Perl, C headers) and translations into scripts other than Latin.
"""

import argparse
import gettext
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv

PEERS = ("tokenizers==0.23.3", "tiktoken==0.14.0", "numpy==2.4.6")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("--mb", type=float, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--document-chars", type=int, default=10000, help="0: all text is one document")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        sys.exit(run_in_environment())
    compare(options)


def run_in_environment() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "-q", *PEERS], check=True)
        return subprocess.run([python, __file__, *sys.argv[1:], "--inside"], check=False).returncode


# ---- the text


def files_of(patterns: list[str]) -> list[pathlib.Path]:
    found = []
    for pattern in patterns:
        found += [path for path in pathlib.Path("/").glob(pattern) if path.is_file()]
    return sorted(found)


def translations() -> list[str]:
    texts = []
    for path in files_of([f"usr/share/locale/{name}/LC_MESSAGES/*.mo" for name in ("ru", "zh_CN", "ja", "ko", "el", "he", "ar", "hi", "uk", "th")]):
        with path.open("rb") as file:
            catalog = gettext.GNUTranslations(file)._catalog
        texts.append("\n".join(text for text in catalog.values() if isinstance(text, str)))
    return texts


def mixed_text(size_bytes: int) -> str:
    kinds = [
        [path.read_text(errors="replace") for path in files_of(["usr/share/common-licenses/*", "usr/share/perl/*/**/*.pod", "usr/share/doc/**/README*"]) if path.suffix != ".gz"],
        [path.read_text(errors="replace") for path in files_of(["usr/lib/python3*/**/*.py", "usr/share/perl/*/**/*.pm", "usr/include/c++/*/**/*.h"])],
        translations(),
    ]
    shares = (0.4, 0.4, 0.2)
    pieces = []
    for texts, share in zip(kinds, shares):
        random.Random(0).shuffle(texts)
        text = "\n".join(texts)
        wanted = int(share * size_bytes)
        while 0 < len(text.encode()) < wanted:
            text += "\n" + text
        pieces.append(text.encode()[:wanted].decode(errors="ignore"))
        print(f"  {len(pieces[-1].encode())} bytes of {('prose', 'code', 'other scripts')[len(pieces) - 1]} from {len(texts)} files")
    return "\n".join(pieces)


# ---- the three programs


class Ours:
    def __init__(self, binary: pathlib.Path, tokenizer: pathlib.Path, text: pathlib.Path):
        import numpy

        ids = subprocess.run([binary, tokenizer, text, "ids"], check=True, capture_output=True).stdout
        self.ids = numpy.frombuffer(ids, dtype=numpy.int32)
        self.child = subprocess.Popen([binary, tokenizer, text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self) -> float:
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline().split()[0])

    def close(self) -> None:
        self.child.stdin.close()
        if self.child.wait() != 0:
            sys.exit("the bench binary failed")


class Peer:
    def __init__(self, encode):
        self.encode = encode
        self.ids = encode()

    def seconds(self) -> float:
        start = time.perf_counter()
        self.encode()
        return time.perf_counter() - start


def documents_of(text: str, size: int) -> list[str]:
    """Cut at the first line end behind `size` characters, or all of it for size 0."""
    documents, start = [], 0
    while start < len(text):
        end = text.find("\n", start + size) + 1 if size else 0
        documents.append(text[start : end or len(text)])
        start = end or len(text)
    return documents


def hugging_face(tokenizer_json: pathlib.Path, documents: list[str]) -> Peer:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_json))
    tokenizer.encode_special_tokens = True
    # The mode without offsets, its fastest.
    return Peer(lambda: [id_ for encoding in tokenizer.encode_batch_fast(documents, add_special_tokens=False) for id_ in encoding.ids])


def tiktoken_of(tokenizer_json: pathlib.Path, documents: list[str]) -> Peer:
    """Ranks are the ids of the vocabulary, which is so for this one."""
    import tiktoken

    file = json.loads(tokenizer_json.read_text())
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(rest)}
    added = {token["content"]: token["id"] for token in file["added_tokens"]}
    ranks = {bytes(byte_of[c] for c in token): id_ for token, id_ in file["model"]["vocab"].items() if token not in added}
    pattern = file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    encoding = tiktoken.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks, special_tokens=added)
    return Peer(lambda: [id_ for document in documents for id_ in encoding.encode_ordinary(document)])


def compare(options: argparse.Namespace) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    text = options.text.read_text() if options.text else mixed_text(int(options.mb * 1e6))
    # Tokens that are written out would be cut out by two of the programs only.
    text = text.replace("<|", "< |").replace("|||", "||").replace("\0", "")
    documents = documents_of(text, options.document_chars)
    with tempfile.NamedTemporaryFile("w", newline="") as file:
        file.write("\0".join(documents))
        file.flush()
        ours = Ours(options.binary, options.tokenizer, pathlib.Path(file.name))
        programs = {"ulmus": ours, "tokenizers": hugging_face(options.tokenizer, documents), "tiktoken": tiktoken_of(options.tokenizer, documents)}
        for name, program in programs.items():
            if list(program.ids) != list(ours.ids):
                sys.exit(f"{name} gives other ids: {len(program.ids)}, ours {len(ours.ids)}")
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(options.rounds):
            for name, program in programs.items():
                times[name].append(program.seconds())
        ours.close()
    size = len(text.encode())
    median = {name: statistics.median(values) for name, values in times.items()}
    print(json.dumps({
        "machine": f"{platform.machine()}, {os.cpu_count()} cores", "bytes": size, "documents": len(documents), "tokens": len(ours.ids), "rounds": options.rounds, "peers": PEERS,
        "rows": [{"system": name, "mode": "encode, 1 thread", "value": round(size / 1e6 / seconds, 2), "unit": "MB/s", "tokens_per_s": round(len(ours.ids) / seconds),
                  "seconds": [round(value, 3) for value in times[name]]} for name, seconds in median.items()],
        "ratios": {f"ulmus/{name}": round(median[name] / median["ulmus"], 2) for name in programs if name != "ulmus"},
    }, indent=1))


if __name__ == "__main__":
    main()
