#!/usr/bin/env python3
"""Checks that src/ is a stack: includes follow the DEPS of each module's CMakeLists, and DEPS point downwards.

    tests/layers.py [ROOT]     prints every violation; exit code 1 if there is one
"""

import dataclasses
import pathlib
import re
import sys
from collections.abc import Iterator

LEVELS = {
    "base": 0,
    "tensor": 1, "tokenizer": 1, "metrics": 1, "launch": 1,
    "graph": 2, "pjrt": 2, "kernels": 2, "data": 2, "checkpoint": 2,
    "nn": 3, "optim": 3, "eval": 3,
    "train": 4, "plan": 4, "infer": 4,
    "apps": 5,
}  # fmt: skip

# Foreign headers that one module hides from all others.
HIDDEN = {"pjrt_c_api.h": "pjrt", "xla/ffi/": "kernels", "arrow/": "data", "parquet/": "data"}
VAGUE_NAMES = {"utils", "util", "common", "misc", "helpers", "helper"}

# Programs and tests across modules, beside src/.
TOPS = ("apps", "examples", "tests")

SOURCE_SUFFIXES = {".cc", ".h", ".cpp", ".hpp"}
TEST_FILE = re.compile(r"_(test|bench|fuzz|conformance|testing)\.(cc|h)$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


@dataclasses.dataclass
class Module:
    name: str
    folder: pathlib.Path
    deps: list[str]
    test_deps: list[str]


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    violations = [*check(root)]
    for violation in violations:
        print(violation)
    print(f"layers: {len(violations)} violations in {root}")
    return 1 if violations else 0


def check(root: pathlib.Path) -> Iterator[str]:
    modules = read_modules(root)
    if not modules:
        yield "src: no module found; expected src/<name>/CMakeLists.txt with add_module(<name> ...)"
    yield from check_names(root)
    yield from check_deps(modules)
    for module in modules.values():
        yield from check_includes(root, modules, module)
    for top in TOPS:
        if (root / top).is_dir():
            yield from check_includes(root, modules, program_folder(root / top))


def read_modules(root: pathlib.Path) -> dict[str, Module]:
    modules = {}
    for path in sorted(root.glob("src/*/CMakeLists.txt")):
        name = path.parent.name
        words = module_words(path)
        if words is None:
            modules[name] = program_folder(path.parent)
            continue
        modules[name] = Module(name, path.parent, words.get("DEPS", []), words.get("TEST_DEPS", []))
    return modules


def module_words(path: pathlib.Path) -> "dict[str, list[str]] | None":
    """The words after each keyword of add_module(...)."""
    call = re.search(r"\badd_module\s*\(([^)]*)\)", without_comments(path))
    if not call:
        return None
    words: dict[str, list[str]] = {}
    keyword = ""
    for word in call[1].split():
        if word.isupper():
            keyword = word
        words.setdefault(keyword, []).extend([] if word.isupper() else [word])
    return words


def program_folder(folder: pathlib.Path) -> Module:
    """A folder without add_module stands on top of the stack and may include all of it."""
    return Module(folder.name, folder, [name for name in LEVELS if name != folder.name], [])


def without_comments(path: pathlib.Path) -> str:
    return re.sub(r"#.*", "", path.read_text())


def check_names(root: pathlib.Path) -> Iterator[str]:
    for top in ("src", *TOPS):
        for folder in sorted((root / top).rglob("*")):
            if folder.is_dir() and folder.name in VAGUE_NAMES:
                yield f"{folder.relative_to(root)}: a folder called `{folder.name}` says nothing; name what is in it"
    for folder in sorted((root / "src").glob("*")):
        if folder.is_dir() and any(folder.rglob("*.cc")) and folder.name not in LEVELS:
            yield f"src/{folder.name}: not in the stack; give it a level in LEVELS of tests/layers.py"
        if folder.is_dir() and folder.name in LEVELS and not (folder / "CMakeLists.txt").exists():
            yield f"src/{folder.name}: no CMakeLists.txt, so its DEPS are unknown"


def check_deps(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        where = f"src/{module.name}/CMakeLists.txt"
        for dep in [*module.deps, *module.test_deps]:
            if dep not in LEVELS:
                yield f"{where}: DEPS names `{dep}`, which is no module"
        for dep in module.deps:
            if LEVELS.get(dep, 0) > LEVELS.get(module.name, 0):
                yield (
                    f"{where}: `{module.name}` (level {LEVELS[module.name]}) depends on `{dep}` (level {LEVELS[dep]}) above"
                    f" it; take what is needed as a parameter"
                )
        if module.name in reachable(modules, module.deps):
            yield f"{where}: `{module.name}` depends on itself through {' '.join(module.deps)}"


def reachable(modules: dict[str, Module], names: list[str]) -> set[str]:
    """`names` and everything below them."""
    seen: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += modules[name].deps if name in modules else []
    return seen


def check_includes(root: pathlib.Path, modules: dict[str, Module], module: Module) -> Iterator[str]:
    library = {module.name} | reachable(modules, module.deps)
    test = library | reachable(modules, module.test_deps)
    for path in sorted(module.folder.rglob("*")):
        if path.suffix not in SOURCE_SUFFIXES or not path.is_file():
            continue
        allowed = test if TEST_FILE.search(path.name) else library
        text = path.read_text(errors="replace")
        for match in INCLUDE.finditer(text):
            where = f"{path.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}"
            yield from check_include(where, match[1], module, allowed)


def check_include(where: str, header: str, module: Module, allowed: set[str]) -> Iterator[str]:
    for prefix, owner in HIDDEN.items():
        if (header.startswith(prefix) or header.endswith("/" + prefix)) and module.name != owner:
            yield f"{where}: <{header}> may be included in src/{owner} only"
    first, slash, _ = header.partition("/")
    if slash and first in LEVELS and first not in allowed:
        yield (
            f'{where}: includes "{header}", but `{module.name}` does not name `{first}` in its DEPS;'
            f" it may include: {' '.join(sorted(allowed))}"
        )


if __name__ == "__main__":
    sys.exit(main())
