"""deploy/systemd: what systemd itself says of the units."""

import re
import shutil

import pytest

from engine import BIN, ROOT
from test_files import run

UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
# Of ten; a unit without any restriction has 9.6.
EXPOSURE = "1.5"

pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


def copied(unit, directory, text=None):
    """The unit with the programs where this machine has them."""
    copy = directory / unit.name
    copy.write_text((text or unit.read_text()).replace("/usr/local/bin/", f"{BIN}/"))
    return copy


def test_the_units_are_verified_without_a_word(tmp_path):
    # It ends with 0 whatever it finds, so that each line it prints is a failure.
    done = run("systemd-analyze", "verify", *[copied(unit, tmp_path) for unit in UNITS])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_misspelt_key_would_be_found(tmp_path):
    text = UNITS[0].read_text().replace("ProtectHome=", "ProtectHouse=")
    done = run("systemd-analyze", "verify", copied(UNITS[0], tmp_path, text))
    assert "ProtectHouse" in done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_may_do_little(unit, tmp_path):
    done = run("systemd-analyze", "security", "--offline=true", f"--threshold={int(float(EXPOSURE) * 10)}", copied(unit, tmp_path))
    assert done.returncode == 0, done.stdout[-300:]


def test_the_programs_accept_what_the_units_start_them_with():
    for unit in UNITS:
        program, *arguments = re.search(r"^ExecStart=/usr/local/bin/(.*)$", unit.read_text(), re.MULTILINE).group(1).split()
        flags = {argument for argument in arguments if argument.startswith("--")}
        assert flags <= set(re.findall(r"--[a-z-]+", run(BIN / program, "--help").stdout)), unit.name


def test_the_users_of_the_units_are_made():
    made = set(re.findall(r"^u (\S+)", (ROOT / "deploy/systemd/llm-router.sysusers").read_text(), re.MULTILINE))
    assert made == {re.search(r"^User=(\S+)$", unit.read_text(), re.MULTILINE).group(1) for unit in UNITS}
