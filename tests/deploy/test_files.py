"""What can be said of the files in deploy/ without running them, each by the program that knows its kind."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import pathlib

import pytest

from engine import BIN, ROOT

DEPLOY = ROOT / "deploy"
TOOLS = pathlib.Path(sys.executable).parent


def run(*command, cwd=ROOT, **environment):
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**os.environ, **environment},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180,
    )  # fmt: skip


def accepted(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_dockerfile_is_clean():
    assert accepted(run(TOOLS / "hadolint", DEPLOY / "Dockerfile")) == ""


def test_the_build_stage_has_the_toolchain_of_the_repository_and_names_no_registry():
    bases = re.findall(r"^FROM (\S+) AS", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    outside = [base for base in bases if base not in ("scratch", "runtime")]
    channel = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    assert outside == [f"rust:{channel}-slim-bookworm"]


def test_the_dependency_layer_has_every_manifest(tmp_path):
    """What the Dockerfile copies before our code is enough for cargo to plan the build."""
    before_code, _ = (DEPLOY / "Dockerfile").read_text().split("\nRUN ", 1)
    for sources, target in re.findall(r"^COPY (.+) (\S+)$", before_code, re.MULTILINE):
        for source in sources.split():
            if not target.startswith("/"):
                (tmp_path / target).mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, tmp_path / target)
    accepted(run("sh", DEPLOY / "docker/stubs.sh", cwd=tmp_path))
    planned = accepted(run("cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version=1", cwd=tmp_path))
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    assert len(json.loads(planned)["packages"]) == len(members)


def test_what_the_dockerfile_copies_is_not_ignored():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for source in " ".join(copied).split():
        assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


@pytest.mark.parametrize("profile", ["", "sim"])
@pytest.mark.parametrize("env_file", ["/dev/null", ".env.example"])
def test_the_compose_file_is_valid(profile, env_file):
    command = [TOOLS / "docker-compose", "--env-file", env_file, "config", "-q"]
    done = run(*command, cwd=DEPLOY, COMPOSE_PROFILES=profile)
    accepted(done)
    assert done.stderr == ""


def test_a_misspelt_key_of_the_compose_file_would_be_found(tmp_path):
    text = (DEPLOY / "docker-compose.yml").read_text()
    (tmp_path / "docker-compose.yml").write_text(text.replace("healthcheck:", "healthchek:", 1))
    assert run(TOOLS / "docker-compose", "config", "-q", cwd=tmp_path).returncode != 0


def test_the_environment_file_has_every_variable_with_its_default():
    compose = (DEPLOY / "docker-compose.yml").read_text()
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", compose))
    assert used.keys() == set(re.findall(r"\$\{(\w+)", compose))
    example = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / ".env.example").read_text(), re.MULTILINE))
    assert example.keys() == used.keys()
    # A blank default leaves the program its own, which the example writes out.
    assert {name: example[name] for name in used if used[name]} == {name: used[name] for name in used if used[name]}


def test_the_routers_own_check_passes_the_stack_s_configuration():
    accepted(run(BIN / "router", "--check", "--config", DEPLOY / "config/router.yaml", BACKENDS="a:8000,https://b/base"))
    refused = run(BIN / "router", "--check", "--config", DEPLOY / "config/router.yaml", BACKENDS="a:8000,b")
    assert refused.returncode == 1 and "routes/chat.yaml" in refused.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/quick-start.md", "deploy/docker-compose.yml"])
def test_the_command_that_starts_the_stack_is_one_and_names_what_is_there(page):
    commands = set(re.findall(r"docker compose (-f .*) up (.*)$", (ROOT / page).read_text(), re.MULTILINE))
    assert commands == {("-f deploy/docker-compose.yml --profile sim", "--build --wait")}
    ((before, _),) = commands
    services = accepted(run(TOOLS / "docker-compose", *before.split(), "config", "--services")).split()
    assert {"router", "grafana", "engine-a"} <= set(services)
