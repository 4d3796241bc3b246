#!/usr/bin/env python3
"""demo/run in miniature: the texts of this repository, a model of a few thousand weights, a dozen steps.

    demo/run_test.py build/ulmus
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
ULMUS = pathlib.Path(sys.argv.pop()).resolve()
STEPS, SAVE_EVERY, KILL_AFTER, STRAIGHT_STEPS = 40, 4, 6, 12
SMALL = {
    "model.hidden_size": 32,
    "model.intermediate_size": 64,
    "model.num_heads": 2,
    "model.num_kv_heads": 2,
    "model.head_dim": 16,
    "model.sliding_window": 8,
    "data.sequence_length": 32,
    "data.global_batch": 4,
    "train.steps": STEPS,
    "eval.every": 20,
    "checkpoint.every": SAVE_EVERY,
    "checkpoint.keep_every": STRAIGHT_STEPS,
}


def write_texts(folder: pathlib.Path) -> None:
    """Paragraphs of the documents here for training; those of the licence are held out."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    paragraphs = [text for path in documents for text in path.read_text().split("\n\n")]
    licence = (ROOT / "LICENSE").read_text().split("\n\n")
    files = {"train/documents": paragraphs, **{f"heldout/{name}": licence[:8] for name in ("bible", "computing", "dictionary")}}
    for name, texts in files.items():
        path = folder / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


class Run(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        write_texts(self.folder / "text")

    def run_demo(self, **settings: object) -> tuple[int, str]:
        env = {**os.environ, "ULMUS_PROGRAM": str(ULMUS), "ULMUS_DEPS_DIR": str(ROOT / ".deps")}
        command = [ROOT / "demo/run", "--runs", self.folder / "runs", "--text", self.folder / "text"]
        command += ["--kill-after", str(KILL_AFTER), "--straight-steps", str(STRAIGHT_STEPS)]
        for key, value in {**SMALL, **settings}.items():
            command += ["--set", f"{key}={value}"]
        result = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=500)
        return result.returncode, result.stdout + result.stderr

    def test_trains_is_killed_goes_on_and_samples(self) -> None:
        code, output = self.run_demo()
        self.assertEqual(code, 0, output)
        self.assertIn(f"equal to the last bit: loss, gradient norm and instance ids of {STRAIGHT_STEPS} steps", output)
        self.assertRegex(output, rf"bible +\d\.\d+ before, \d\.\d+ after step {STEPS}\n")
        run = self.folder / "runs/demo"
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        steps = [record["step"] for record in records if record["kind"] == "step"]
        self.assertEqual(steps, list(range(1, STEPS + 1)))  # work lost by the kill was done again, and is there once
        self.assertIn("resume", [record.get("name") for record in records])
        self.assertEqual(len(list(run.glob("events.out.tfevents.*"))) > 0, True)

    def test_a_wrong_recipe_stops_before_training(self) -> None:
        code, output = self.run_demo(**{"model.num_kv_heads": 3})
        self.assertEqual(code, 2, output)
        self.assertFalse((self.folder / "runs/demo").exists())


if __name__ == "__main__":
    unittest.main()
