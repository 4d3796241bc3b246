"""A virtual environment with the packages that an interop test compares with, made on first use."""

import pathlib
import subprocess
import sys
import venv

SKIPPED = 77


def run_inside(script: str, environment: pathlib.Path, packages: tuple[str, ...]) -> int | None:
    """None if this is the environment's Python; else runs the script in it and returns its exit code."""
    python = environment / "bin" / "python"
    if pathlib.Path(sys.prefix) == environment.resolve():
        return None
    if not prepare(pathlib.Path(script).stem, environment, python, packages):
        return SKIPPED
    return subprocess.run([python, "-B", script, *sys.argv[1:]], check=False).returncode


def prepare(test: str, environment: pathlib.Path, python: pathlib.Path, packages: tuple[str, ...]) -> bool:
    stamp = environment / "packages.txt"
    if stamp.exists() and stamp.read_text() == "\n".join(packages):
        return True
    try:
        venv.create(environment, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{test}: skipped, the packages cannot be had: {error}")
        return False
    stamp.write_text("\n".join(packages))
    return True
