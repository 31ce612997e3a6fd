"""Install what `make dist` made into new environments, and compute with it.

    python tools/check_installations.py dist
    python tools/check_installations.py --installed   # the package of this Python, which must have the core

A wheel with the core needs the core, the pure wheel and the sdist on a machine without a compiler do without.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

PROGRAM = """
import numpy, regmax
from regmax.kernels import native
assert native.available() == {native}, native.available()
weights = regmax.fusedmax(numpy.array([1.0, 0.95, 0.6]), lam=0.1)
assert weights.round(6).tolist() == [0.408333, 0.408333, 0.183333], weights
{torch}
regmax.show_versions()
"""
TORCH = """
import torch
x = torch.tensor([[1.0, 0.95, 0.6]], requires_grad=True)
regmax.fusedmax(x, lam=0.1)[0, 0].backward()
assert torch.allclose(x.grad, torch.tensor([[1 / 6, 1 / 6, -1 / 3]])), x.grad
"""


def check(name: str, archive: Path, *, native: bool, compiler: bool = True, torch: str | None = None) -> None:
    """Install an archive, with NumPy and at most torch, and run the program above."""
    print(f"== {name}: {archive.name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder) / ("Scripts" if os.name == "nt" else "bin")
        python = programs / "python"
        environment = dict(os.environ)
        if not compiler:
            environment["PATH"] = str(programs)
        install = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            str(archive),
        ]
        subprocess.run([*install, *([torch] if torch else [])], check=True, env=environment)
        program = PROGRAM.format(native=native, torch=TORCH if torch else "")
        # In the new folder, so that no source is imported.
        subprocess.run([python, "-c", program], check=True, cwd=folder, env=environment)


def strangers(sdist: Path) -> list[str]:
    """What an sdist contains from a working folder: environments, build products."""
    with tarfile.open(sdist) as archive:
        parts = [Path(name).parts for name in archive.getnames()]
    return sorted(
        {part[1] for part in parts if len(part) > 1 and part[1] in (".venv", "build", "dist", ".git")}
    )


def main() -> int:
    """Check every archive of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("dist"))
    parser.add_argument("--installed", action="store_true", help="only check what this Python has installed")
    parser.add_argument(
        "--torch", metavar="REQUIREMENT", help="try the wheel with this torch too: torch==2.13.0"
    )
    options = parser.parse_args()
    if options.installed:
        subprocess.run([sys.executable, "-c", PROGRAM.format(native=True, torch="")], check=True)
        return 0
    archives = sorted(path.resolve() for path in options.folder.iterdir())
    sdists = [path for path in archives if path.name.endswith(".tar.gz")]
    pure = [path for path in archives if path.name.endswith("-none-any.whl")]
    wheels = [path for path in archives if path.suffix == ".whl" and path not in pure]
    if len(sdists) != 1 or len(pure) != 1 or not wheels:
        print(
            f"{options.folder} must hold an sdist, a pure wheel and a wheel with the core.", file=sys.stderr
        )
        return 1
    if found := strangers(sdists[0]):
        print(f"{sdists[0].name} must hold only the sources. Got {', '.join(found)}.", file=sys.stderr)
        return 1
    for wheel in wheels:
        check("NumPy only", wheel, native=True)
        if options.torch:
            check(options.torch, wheel, native=True, torch=options.torch)
    check("pure wheel", pure[0], native=False)
    check("sdist without a compiler", sdists[0], native=False, compiler=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
