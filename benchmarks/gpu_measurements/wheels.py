"""Packages that the machine lacks, from a folder of wheels."""

import hashlib
import subprocess
import sys
from pathlib import Path


def install(wheels: Path, cache: Path) -> Path:
    """The folder of their own that wheels are installed into; an interrupted installation is repeated.

    Raises:
        SystemExit: there are no wheels.
    """
    files = sorted(wheels.glob("*.whl"))
    if not files:
        sys.exit(f"{wheels}: has no wheels; see docs/gpu.md")
    listing = "\n".join([sys.version, *(file.name for file in files)])
    target = cache / f"wheels-{hashlib.sha256(listing.encode()).hexdigest()[:12]}"
    done = target / ".complete"
    if not done.exists():
        # Without dependencies: what the machine has is used, and PyTorch above all is not looked for.
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        command += ["--upgrade", "--find-links", str(wheels), "--target", str(target), *map(str, files)]
        subprocess.run(command, check=True)
        done.touch()
    return target
