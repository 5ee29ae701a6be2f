"""deploy/release: an archive, a Debian package, the chart and their sums, made from the programs of the tests."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tomllib

import pytest
import yaml

from engine import BIN, ROOT, copy_program
from test_files import accepted, run
from test_helm import HELM

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
PROGRAMS = ("router", "bodylog-listener", "bodylog-exporter", "llmctl")

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg-deb is not installed")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS:
        subprocess.run(["strip", "-o", directory / name, BIN / name], check=True)
    return directory


@pytest.fixture(scope="module")
def out(programs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("release") / "out"
    accepted(release(programs, directory))
    return directory


def release(programs, directory):
    return run(ROOT / "deploy/release", "--programs", programs, "--out", directory, PATH=f"{HELM}:{os.environ['PATH']}")


@pytest.fixture(scope="module")
def installed(out, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    (package,) = out.glob("*.deb")
    accepted(run("dpkg-deb", "-x", package, root))
    accepted(run("dpkg-deb", "-e", package, root / "DEBIAN"))
    return root


def test_every_file_has_a_sum(out):
    sums = dict(reversed(line.split("  ")) for line in (out / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {path.name for path in out.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    assert {name.rsplit(".", 1)[1] for name in sums} >= {"gz", "deb", "tgz"}


def test_the_archive_holds_programs_pages_units_and_docs(out):
    (path,) = out.glob("*-linux.tar.gz")
    with tarfile.open(path) as archive:
        names = {"/".join(name.split("/")[1:]) for name in archive.getnames()}
        owners = {(member.uid, member.gid) for member in archive}
    assert owners == {(0, 0)}
    assert {f"bin/{name}" for name in PROGRAMS} <= names
    assert {"man/llmctl.1", "completions/llmctl.bash", "systemd/llm-router.service", "docs/options.md", "examples/router.yaml", "LICENSE"} <= names


def test_the_package_is_what_debian_expects(installed):
    control = yaml.safe_load((installed / "DEBIAN/control").read_text())
    assert control["Package"] == "llm-router" and control["Version"] == f"{VERSION}-1"
    for line in (installed / "DEBIAN/conffiles").read_text().split():
        assert (installed / line.lstrip("/")).is_file(), line
    for script in ("postinst", "prerm", "postrm"):
        assert os.access(installed / "DEBIAN" / script, os.X_OK)
        accepted(run("sh", "-n", installed / "DEBIAN" / script))
    assert (installed / "usr/share/man/man1/llmctl.1.gz").is_file()
    assert (installed / "usr/share/bash-completion/completions/llmctl").is_file()


def test_its_units_start_its_programs_under_users_that_it_makes(installed):
    users = set(re.findall(r"^u (\S+)", (installed / "usr/lib/sysusers.d/llm-router.conf").read_text(), re.MULTILINE))
    units = list((installed / "usr/lib/systemd/system").glob("*.service"))
    assert len(units) == 3
    for unit in units:
        text = unit.read_text()
        program = re.search(r"^ExecStart=(\S+)", text, re.MULTILINE).group(1)
        assert (installed / program.lstrip("/")).is_file(), program
        assert re.search(r"^User=(\S+)", text, re.MULTILINE).group(1) in users
        assert "/usr/local/" not in text
    script = (installed / "DEBIAN/postinst").read_text()
    assert all(user in script for user in users) and all(unit.name in script for unit in units)


def test_its_configuration_is_accepted_and_closed_to_other_machines(installed, tmp_path):
    shutil.copytree(installed / "etc/llm-router", tmp_path / "etc")
    main = tmp_path / "etc/router.yaml"
    main.write_text(main.read_text().replace("/etc/llm-router", str(tmp_path / "etc")))
    accepted(run(BIN / "router", "--check", "--config", main))
    server = yaml.safe_load(main.read_text())["server"]
    assert server["listen"].startswith("127.0.0.1:") and server["admin_listen"].startswith("127.0.0.1:")


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_its_programs_run_in_a_bare_tree(installed, tmp_path):
    # The programs of the tests are not static, so their libraries come along.
    for name in PROGRAMS:
        copy_program(BIN / name, tmp_path, f"usr/bin/{name}")
        said = accepted(run("chroot", tmp_path, f"/usr/bin/{name}", "--version"))
        assert said.split()[-1] == VERSION


def test_a_wrong_version_and_a_missing_program_are_refused(programs, tmp_path):
    other = tmp_path / "programs"
    shutil.copytree(programs, other)
    (other / "router").write_text("#!/bin/sh\necho router 9.9.9\n")
    (other / "router").chmod(0o755)
    refused = release(other, tmp_path / "out")
    assert refused.returncode == 1 and f"router --version says 'router 9.9.9'; Cargo.toml has {VERSION}" in refused.stderr
    (other / "bodylog-exporter").unlink()
    (other / "router").unlink()
    refused = release(other, tmp_path / "out")
    assert refused.returncode == 1 and "router is missing" in refused.stderr
    assert not pathlib.Path(tmp_path / "out").exists()
