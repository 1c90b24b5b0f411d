"""Check that a release works: build the wheel, install it into a new environment, run the demo.

All files that contain the version must agree. Apart from the wheel and the pinned versions, nothing
of this folder is used. Usage::

    python tools/release_check.py
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Files that contain the version, and how to find it.
VERSIONS = {
    "pyproject.toml": r'^version = "(.+)"$',
    "src/cgmvae/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
}


def main() -> None:
    """Build, install and run; stop at the first step that fails."""
    check_versions()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = build_wheel(folder / "wheels")
        programs = install(wheel, folder / "environment")
        run_demo(programs, folder / "empty")
    print(f"{wheel.name} installs into a new environment, and its demo runs.")


def check_versions() -> None:
    """Check that all files contain the same version."""
    found = {}
    for name, pattern in VERSIONS.items():
        stated = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = stated[1] if stated else "none"
    if len(set(found.values())) > 1:
        sys.exit(f"The versions differ: {', '.join(f'{v} in {n}' for n, v in found.items())}.")


def build_wheel(folder: Path) -> Path:
    """Build the wheel and return its path."""
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel and the packages that the demo needs; return the folder of executables."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    pins = ROOT / "constraints.txt"
    run(
        programs / "pip",
        "install",
        "--quiet",
        "--constraint",
        pins,
        f"cgmvae[demo] @ {wheel.as_uri()}",
    )
    run(programs / "pip", "check")
    return programs


def run_demo(programs: Path, folder: Path) -> None:
    """Run the demo from an empty folder, and check its output files."""
    folder.mkdir()
    run(programs / "cgmvae", "demo", "--out", "demo", folder=folder)
    model, page = folder / "demo" / "yeast.cgmvae", folder / "demo" / "report.html"
    if not page.stat().st_size:
        sys.exit("The demo wrote an empty page.")
    run(programs / "python", "-c", f"import cgmvae; cgmvae.load({str(model)!r})", folder=folder)


def run(*command: object, folder: Path = ROOT) -> None:
    """Run a command, and exit if it fails."""
    print("$", *command, flush=True)
    ended = subprocess.run([str(word) for word in command], cwd=folder)
    if ended.returncode:
        sys.exit(f"Failed with exit code {ended.returncode}.")


if __name__ == "__main__":
    main()
