#!/usr/bin/env python3
"""demo/corpus without a network: small packages made here stand in the cache, and apt-get must not be called."""

import base64
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
SAYING = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
QUOTED = SAYING + " and again backwards from fourteen to one without a pause or a stop in between, said the smith."


def number(value: int) -> str:
    digits = ""
    while True:
        digits = DIGITS[value % 64] + digits
        value //= 64
        if value == 0:
            return digits


def dictd(name: str, entries: list[str]) -> dict[str, bytes]:
    data, index = b"", ""
    for i, entry in enumerate(entries):
        word = "00-database-info" if i == 0 else f"word{i}"
        index += f"{word}\t{number(len(data))}\t{number(len(entry.encode()))}\n"
        data += entry.encode()
    folder = "usr/share/dictd"
    return {f"{folder}/{name}.dict.dz": gzip.compress(data), f"{folder}/{name}.index": index.encode()}


def prose(word: str, paragraphs: int) -> str:
    return "\n\n".join(f"{word} {i}. " + " ".join(f"{word}{i}x{j}" for j in range(150)) for i in range(paragraphs))


def contents() -> dict[str, dict[str, bytes]]:
    bible = "".join(f"\nGenesis {i}\n\n  1 In the beginning {' '.join(f'b{i}w{j}' for j in range(60))}.\n" for i in range(1, 200))
    entries = ["about"] + [f"Elm{i} {{Tree}}.\n   {' '.join(f'd{i}w{j}' for j in range(900))}\n   [1913 Webster]\n" for i in range(300)]
    manual = gzip.compress(prose("policy", 200).encode())
    quoting = gzip.compress(("\n\n".join(f"{prose(f'guide{i}', 8)}\n\n{QUOTED}" for i in range(60))).encode())
    return {
        "bible-kjv": {"usr/bin/bible": f"#!/bin/sh\ncat <<'END'\n{bible}\nEND\n".encode()},
        "bible-kjv-text": {"usr/lib/bible.data": b"x", "usr/lib/bible.data.conc": b"y"},
        "dict-gcide": dictd("gcide", entries),
        "dict-devil": dictd("devil", ["about", "EGOTIST, n. A person of low taste.\n"]),
        "dict-foldoc": dictd("foldoc", ["about"] + [f"term{i}\n\n   {prose(f't{i}', 6)}\n" for i in range(80)]),
        "debian-reference-en": {"usr/share/debian-reference/debian-reference.en.txt.gz": quoting},
        "debian-policy": {"usr/share/doc/debian-policy/policy.txt.gz": manual},
        "developers-reference": {
            "usr/share/developers-reference/developers-reference.txt.gz": gzip.compress(prose("dev", 90).encode())
        },
        "maint-guide": {"usr/share/doc/maint-guide/maint-guide.en.txt.gz": gzip.compress(prose("maint", 90).encode())},
    }


class Corpus(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.made = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.made)
        cls.pins = "# made by the test\n"
        for name, files in contents().items():
            tree = cls.made / "tree" / name
            for path, data in {**files, f"usr/share/doc/{name}/copyright": b"free\n"}.items():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_bytes(data)
            (tree / "DEBIAN").mkdir()
            (tree / "DEBIAN/control").write_text(
                f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: test\n"
            )
            deb = cls.made / f"{name}_1_all.deb"
            subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, deb], check=True, capture_output=True)
            cls.pins += f"{name} 1 {hashlib.sha256(deb.read_bytes()).hexdigest()}  # free: a test\n"

    def setUp(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "demo").mkdir()
        shutil.copy(SOURCE / "corpus", self.folder / "demo/corpus")
        (self.folder / "demo/packages.txt").write_text(self.pins)
        self.cache = self.folder / "cache/ulmus/packages"
        self.cache.mkdir(parents=True)
        for deb in self.made.glob("*.deb"):
            shutil.copy(deb, self.cache)
        self.fake_apt("echo apt-get must not be called >&2; exit 9")

    def fake_apt(self, script: str) -> None:
        (self.folder / "bin").mkdir(exist_ok=True)
        apt = self.folder / "bin/apt-get"
        apt.write_text(f"#!/bin/sh\n{script}\n")
        apt.chmod(0o755)

    def run_corpus(self, out: str = "out") -> tuple[int, str]:
        env = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        command = [sys.executable, "-B", self.folder / "demo/corpus", "--out", self.folder / out]
        result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr

    def texts(self, name: str, out: str = "out") -> list[str]:
        lines = (self.folder / out / name).read_text().splitlines()
        return [json.loads(line)["text"] for line in lines]

    def everything(self, kind: str) -> list[str]:
        return [text for source in ("bible", "dictionary", "computing") for text in self.texts(f"{kind}/{source}.jsonl")]

    def test_same_packages_give_the_same_bytes(self) -> None:
        self.assertEqual(self.run_corpus("a")[0], 0)
        self.assertEqual(self.run_corpus("b")[0], 0)
        files = sorted(path.relative_to(self.folder / "a") for path in (self.folder / "a").rglob("*") if path.is_file())
        self.assertGreater(len(files), 6)
        for path in files:
            self.assertEqual((self.folder / "a" / path).read_bytes(), (self.folder / "b" / path).read_bytes(), path)

    def test_heldout_documents_are_not_trained_on(self) -> None:
        code, output = self.run_corpus()
        self.assertEqual(code, 0, output)
        train, heldout = self.everything("train"), self.everything("heldout")
        self.assertGreater(len(heldout), 6)
        self.assertFalse(set(train) & set(heldout))

    def test_a_document_that_quotes_training_text_is_not_held_out(self) -> None:
        self.run_corpus()
        self.assertTrue(any(QUOTED in text for text in self.everything("train")))
        self.assertFalse(any(SAYING in text for text in self.everything("heldout")))

    def test_text_is_clean(self) -> None:
        self.run_corpus()
        self.assertRegex(self.texts("train/bible.jsonl")[0], r"\AGenesis 1\n1 In the beginning")
        text = "".join(self.texts("train/dictionary.jsonl"))
        self.assertIn("Elm0 Tree.", text)
        self.assertNotIn("Webster", text)
        self.assertNotIn("about", text)

    def test_second_call_writes_nothing(self) -> None:
        self.run_corpus()
        before = {path: path.stat().st_mtime_ns for path in (self.folder / "out").rglob("*")}
        self.assertEqual(self.run_corpus()[0], 0)
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in (self.folder / "out").rglob("*")})

    def test_a_file_cut_short_is_written_again(self) -> None:
        self.run_corpus()
        path = self.folder / "out/train/bible.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole[:100])
        self.assertEqual(self.run_corpus()[0], 0)
        self.assertEqual(path.read_bytes(), whole)

    def test_a_damaged_package_is_fetched_again(self) -> None:
        deb = self.cache / "debian-policy_1_all.deb"
        whole = deb.read_bytes()
        deb.write_bytes(whole[:-1] + b"?")
        encoded = base64.b64encode(whole).decode()
        self.fake_apt(f'case "$*" in *"download debian-policy=1") echo {encoded} | base64 -d >debian-policy_1_all.deb;; *) exit 9;; esac')
        code, output = self.run_corpus()
        self.assertEqual(code, 0, output)
        self.assertIn("fetching debian-policy 1", output)
        self.assertEqual(deb.read_bytes(), whole)

    def test_another_version_is_used_and_named(self) -> None:
        deb = self.cache / "debian-policy_1_all.deb"
        shutil.move(deb, self.folder / "newer.deb")
        self.fake_apt(f'case "$*" in *"download debian-policy") cp {self.made}/maint-guide_1_all.deb debian-policy_2_all.deb;; *) exit 9;; esac')
        code, output = self.run_corpus()
        self.assertIn("debian-policy_2_all.deb is not version 1", output)
        self.assertEqual(code, 1)  # the stand-in holds other files: said by name
        self.assertIn("debian-policy_2_all.deb: holds no file usr/share/doc/debian-policy/policy.txt.gz", output)

    def test_no_network_says_what_to_do(self) -> None:
        (self.cache / "dict-gcide_1_all.deb").unlink()
        self.fake_apt("echo 'E: Temporary failure resolving' >&2; exit 100")
        code, output = self.run_corpus()
        self.assertEqual(code, 1)
        self.assertIn("could not fetch dict-gcide", output)
        self.assertIn("Temporary failure resolving", output)
        self.assertIn("put the .deb into", output)
        self.assertFalse((self.folder / "out/corpus.json").exists())


if __name__ == "__main__":
    unittest.main()
