#!/usr/bin/env python3
"""tools/setup without a network: pip is pointed at a folder with small wheels made here."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from typing import Optional

SOURCE = pathlib.Path(__file__).parent.parent
NAME = "ulmus-example"
FILE = "ulmus_example-1.0-py3-none-any.whl"
METADATA = "Metadata-Version: 2.1\nName: ulmus-example\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Setup(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.root = self.folder / "repository"
        self.cache = self.folder / "cache" / "ulmus" / "wheels"
        self.index = self.folder / "index"
        self.index.mkdir()
        (self.root / "tools").mkdir(parents=True)
        shutil.copy(SOURCE / "tools" / "setup", self.root / "tools" / "setup")
        (self.root / "tools" / "packages.txt").write_text("# none\n")
        self.pin(self.make_wheel({"lib/a.so": "library", "lib/include/a.h": "header"}))

    def make_wheel(self, files: dict[str, str]) -> str:
        info = "ulmus_example-1.0.dist-info"
        files = {**files, f"{info}/METADATA": METADATA, f"{info}/WHEEL": WHEEL, f"{info}/RECORD": ""}
        with zipfile.ZipFile(self.index / FILE, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return hashlib.sha256((self.index / FILE).read_bytes()).hexdigest()

    def pin(self, sha256: str, option: str = "") -> None:
        text = f"# [core] for the test\n{NAME}==1.0 --hash=sha256:{sha256}{option}\n"
        (self.root / "tools" / "wheels.txt").write_text(text)

    def run_setup(self, *args: str, find_links: Optional[pathlib.Path] = None) -> tuple[int, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        env |= {"XDG_CACHE_HOME": str(self.folder / "cache"), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
        env |= {"PIP_FIND_LINKS": str(find_links or self.index)}
        command = [sys.executable, "-B", self.root / "tools" / "setup", *(args or ["core"])]
        result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr

    @property
    def unpacked(self) -> pathlib.Path:
        return self.root / ".deps" / "wheels" / NAME

    def assert_nothing_unpacked(self) -> None:
        self.assertEqual(list((self.root / ".deps" / "wheels").iterdir()), [])

    def test_unpacks_once_and_then_says_nothing(self) -> None:
        code, output = self.run_setup()
        self.assertEqual(code, 0, output)
        self.assertEqual((self.unpacked / "lib/a.so").read_text(), "library")
        nowhere = self.folder / "nowhere"
        self.assertEqual(self.run_setup(find_links=nowhere), (0, ""))

    def test_cached_wheel_needs_no_index(self) -> None:
        self.run_setup()
        shutil.rmtree(self.root / ".deps")
        code, output = self.run_setup(find_links=self.folder / "nowhere")
        self.assertEqual(code, 0, output)
        self.assertTrue((self.unpacked / "lib/a.so").exists())

    def test_missing_file_is_noticed(self) -> None:
        self.run_setup()
        (self.unpacked / "lib/a.so").unlink()
        code, output = self.run_setup()
        self.assertEqual(code, 0, output)
        self.assertTrue((self.unpacked / "lib/a.so").exists())

    def test_new_pin_replaces_the_old_wheel(self) -> None:
        self.run_setup()
        self.pin(self.make_wheel({"lib/b.so": "newer"}))
        code, output = self.run_setup()
        self.assertEqual(code, 0, output)
        self.assertTrue((self.unpacked / "lib/b.so").exists())
        self.assertFalse((self.unpacked / "lib/a.so").exists())

    def test_unpack_prefix_keeps_headers_and_licences_only(self) -> None:
        self.pin(hashlib.sha256((self.index / FILE).read_bytes()).hexdigest(), "  # unpack: lib/include/")
        self.run_setup()
        files = json.loads((self.unpacked / ".wheel.json").read_text())["files"]
        self.assertIn("lib/include/a.h", files)
        self.assertNotIn("lib/a.so", files)
        self.assertIn("ulmus_example-1.0.dist-info/METADATA", files)

    def test_unpack_may_name_several_prefixes(self) -> None:
        sha256 = self.make_wheel({"lib/a.so": "library", "lib/b.so": "other", "lib/include/a.h": "header"})
        self.pin(sha256, "  # unpack: lib/include/ lib/a.")
        self.run_setup()
        files = json.loads((self.unpacked / ".wheel.json").read_text())["files"]
        self.assertLessEqual({"lib/a.so", "lib/include/a.h"}, files.keys())
        self.assertNotIn("lib/b.so", files)

    def test_wrong_checksum_names_wheel_and_both_sums(self) -> None:
        found = hashlib.sha256((self.index / FILE).read_bytes()).hexdigest()
        self.pin("0" * 64)
        code, output = self.run_setup()
        self.assertEqual(code, 1, output)
        for expected in (f"{NAME} 1.0", "0" * 64, found):
            self.assertIn(expected, output)
        self.assert_nothing_unpacked()
        self.assertEqual(list(self.cache.glob("*.whl")), [])

    def test_damaged_cache_is_fetched_again(self) -> None:
        self.run_setup()
        shutil.rmtree(self.root / ".deps")
        (self.cache / FILE).write_bytes(b"half a whe")
        code, output = self.run_setup()
        self.assertEqual(code, 0, output)
        self.assertIn("checksum differs", output)
        self.assertTrue((self.unpacked / "lib/a.so").exists())

    def test_wheel_that_cannot_be_had_names_the_remedy(self) -> None:
        code, output = self.run_setup(find_links=self.folder / "nowhere")
        self.assertEqual(code, 1, output)
        self.assertIn(f"could not fetch {NAME} 1.0", output)
        self.assertIn(str(self.cache), output)

    def test_optional_wheel_leaves_its_reason(self) -> None:
        nowhere = self.folder / "nowhere"
        code, output = self.run_setup("--optional", "core", find_links=nowhere)
        self.assertEqual(code, 0, output)
        note = self.root / ".deps" / "wheels" / f"{NAME}.missing"
        self.assertIn("could not fetch", note.read_text())
        self.run_setup("--optional", "core")
        self.assertFalse(note.exists())

    def test_entry_that_leaves_its_folder_is_refused(self) -> None:
        for name in ("../escaped", "/escaped", "lib/../../escaped"):
            with self.subTest(name):
                self.pin(self.make_wheel({name: "x"}))
                code, output = self.run_setup()
                self.assertEqual(code, 1, output)
                self.assertIn(f"`{name}` would leave its folder", output)
                self.assert_nothing_unpacked()

    def test_unwritable_cache_is_done_without(self) -> None:
        self.cache.parent.mkdir(parents=True)
        self.cache.write_text("a file where the folder should be")
        code, output = self.run_setup()
        self.assertEqual(code, 0, output)
        self.assertIn("not writable", output)
        self.assertTrue((self.unpacked / "lib/a.so").exists())
        self.assertFalse((self.root / ".deps" / "downloads").exists())

    def test_two_at_once_both_succeed(self) -> None:
        env = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "PIP_NO_INDEX": "1"}
        env |= {"PIP_FIND_LINKS": str(self.index), "PIP_CONFIG_FILE": os.devnull}
        command = [sys.executable, "-B", str(self.root / "tools" / "setup"), "core"]
        both = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) for _ in range(2)]
        self.assertEqual([process.wait() for process in both], [0, 0])
        self.assertTrue((self.unpacked / "lib/a.so").exists())

    def test_malformed_pin_names_its_line(self) -> None:
        (self.root / "tools" / "wheels.txt").write_text("# [core]\nulmus-example\n")
        code, output = self.run_setup()
        self.assertEqual(code, 1, output)
        self.assertIn("wheels.txt:2", output)


if __name__ == "__main__":
    unittest.main()
