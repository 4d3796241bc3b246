#!/usr/bin/env python3
"""The layer check on small trees: it must pass a good one and name each fault of a bad one."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

LAYERS = pathlib.Path(__file__).parent / "layers.py"

GOOD = {
    "src/base/CMakeLists.txt": "add_module(base)",
    "src/base/status.h": "#include <string>\n",
    "src/tensor/CMakeLists.txt": "add_module(tensor DEPS base)",
    "src/tensor/shape.cc": '#include "tensor/shape.h"\n#include "base/status.h"\n',
    "src/pjrt/CMakeLists.txt": "add_module(pjrt\n  DEPS base tensor  # plugin\n  LIBS ulmus_pjrt_header)",
    "src/pjrt/api.cc": '#include "pjrt_c_api.h"\n#include "tensor/shape.h"\n',
    "src/graph/CMakeLists.txt": "add_module(graph DEPS tensor TEST_DEPS pjrt)",
    "src/graph/value.cc": '#include "base/status.h"\n',  # through tensor
    "src/graph/value_plugin_test.cc": '#include "pjrt/client.h"\n',
    "examples/demo.cc": '#include "graph/value.h"\n#include "pjrt/client.h"\n',
}


def run(files: dict[str, str]) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = pathlib.Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        result = subprocess.run([sys.executable, LAYERS, root], capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr


class Layers(unittest.TestCase):
    def test_good_tree_passes(self) -> None:
        code, output = run(GOOD)
        self.assertEqual(code, 0, output)

    def test_each_fault_is_named(self) -> None:
        cases = {
            "include not in DEPS": ({"src/tensor/dtype.cc": '#include "pjrt/client.h"\n'}, "src/tensor/dtype.cc:1"),
            "line of the include": ({"src/graph/op.cc": '\n\n#include "pjrt/client.h"\n'}, "src/graph/op.cc:3"),
            "TEST_DEPS outside a test": ({"src/graph/op.h": '#include "pjrt/client.h"\n'}, "src/graph/op.h:1"),
            "DEPS point upwards": ({"src/base/CMakeLists.txt": "add_module(base DEPS graph)"}, "(level 2) above"),
            "DEPS in a circle": ({"src/pjrt/CMakeLists.txt": "add_module(pjrt DEPS graph)",
                                  "src/graph/CMakeLists.txt": "add_module(graph DEPS pjrt)"}, "on itself"),
            "DEPS without a module": ({"src/base/CMakeLists.txt": "add_module(base DEPS bose)"}, "`bose`"),
            "PJRT header outside pjrt": ({"src/graph/run.cc": "#include <pjrt_c_api.h>\n"}, "src/pjrt only"),
            "PJRT header by path": ({"examples/x.cc": '#include "xla/pjrt/c/pjrt_c_api.h"\n'}, "src/pjrt only"),
            "FFI header outside kernels": ({"src/pjrt/x.h": "#  include <xla/ffi/api/ffi.h>\n"}, "src/kernels only"),
            "folder that says nothing": ({"src/graph/utils/x.h": ""}, "`utils` says nothing"),
            "module outside the table": ({"src/extra/x.cc": ""}, "src/extra: not in the stack"),
            "module without CMakeLists": ({"src/nn/x.h": ""}, "src/nn: no CMakeLists"),
        }  # fmt: skip
        for claim, (change, expected) in cases.items():
            with self.subTest(claim):
                code, output = run({**GOOD, **change})
                self.assertEqual(code, 1, output)
                self.assertIn(expected, output)

    def test_tree_without_modules_fails(self) -> None:
        code, output = run({"src/readme": ""})
        self.assertEqual(code, 1, output)


if __name__ == "__main__":
    unittest.main()
