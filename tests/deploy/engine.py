"""A container engine of the tests' own: podman behind the socket that Compose talks to.

Images, containers and networks lie in a directory that is removed at the end. Every process started here is ended here.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BIN = pathlib.Path(os.environ.get("LLM_ROUTER_TEST_BIN", ROOT / "target" / "debug"))
TOOLS = ("podman", "runc", "netavark", "aardvark-dns")
HELPERS = "/usr/lib/podman"
PATIENCE = 120.0

# crun refuses a machine with both kinds of control groups; a machine without journald has no journal to log to; the
# default limits cannot be raised inside a container; and `llm-router/router` is the image here, not one of a hub's.
CONTAINERS_CONF = """\
[engine]
runtime = "runc"
compat_api_enforce_docker_hub = false
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[network]
network_backend = "netavark"
"""


class Unavailable(Exception):
    """Why this machine cannot run containers."""


def until(what, look, patience=PATIENCE):
    """Looks until it finds something true, and returns it."""
    deadline = time.monotonic() + patience
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.1)
    return found


class Podman:
    """`with Podman() as engine:` …; `engine.environment` is for whoever talks to its socket."""

    def __init__(self):
        self._exit = contextlib.ExitStack()

    def __enter__(self):
        with self._exit:
            self._start()
            self._exit = self._exit.pop_all()
        return self

    def __exit__(self, *_):
        self._exit.close()

    def _start(self):
        if os.geteuid() != 0:
            raise Unavailable("containers need root here")
        for tool in TOOLS:
            if not shutil.which(tool, path=f"{os.environ['PATH']}:{HELPERS}"):
                raise Unavailable(f"{tool} is not installed")
        # A short path: a socket's has at most 107 bytes.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="llmr-"))
        self._exit.callback(self._remove)
        conf = self.directory / "containers.conf"
        conf.write_text(CONTAINERS_CONF)
        self.socket = self.directory / "s"
        (self.directory / "docker").mkdir()
        (self.directory / "docker/config.json").write_text("{}")
        self.environment = {
            **os.environ,
            "CONTAINERS_CONF": str(conf),
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_CONFIG": str(self.directory / "docker"),
            "XDG_RUNTIME_DIR": str(self.directory),
        }
        self._command = [
            # Not left to podman: where it doubts the kernel it copies every layer whole.
            "podman", "--storage-driver", "overlay",
            "--root", str(self.directory / "root"), "--runroot", str(self.directory / "run"),
            "--network-config-dir", str(self.directory / "networks"), "--cgroup-manager", "cgroupfs",
        ]  # fmt: skip
        log = (self.directory / "service.log").open("w")
        self._exit.callback(log.close)
        service = subprocess.Popen(
            [*self._command, "system", "service", "--time=0", f"unix://{self.socket}"],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        self._exit.callback(self._stop, service)
        try:
            until("the engine's socket", lambda: self.socket.exists() or service.poll() is not None, 20)
        except TimeoutError as error:
            raise Unavailable(str(error)) from None
        if service.poll() is not None:
            raise Unavailable(f"podman: {(self.directory / 'service.log').read_text()[-500:]}")
        self._watch_health()

    def _watch_health(self):
        """Podman leaves health checks to systemd's timers; this stands in for them where there is no systemd."""
        stop = threading.Event()

        def check():
            while not stop.wait(0.3):
                for container in self.run("ps", "-q", check=False).stdout.split():
                    self.run("healthcheck", "run", container, check=False)

        thread = threading.Thread(target=check, daemon=True)
        thread.start()
        self._exit.callback(thread.join)
        self._exit.callback(stop.set)

    def run(self, *arguments, check=True):
        return subprocess.run(
            [*self._command, *arguments],
            env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=check, timeout=300,
        )  # fmt: skip

    def _stop(self, service):
        self.run("rm", "--all", "--force", "--time=0", check=False)
        self.run("volume", "prune", "--force", check=False)
        self.run("network", "prune", "--force", check=False)
        service.terminate()
        try:
            service.wait(10)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()

    def _remove(self):
        # What watched over an `exec` stays for minutes to tidy up, in a directory that is gone by then.
        for command in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if f"{self.directory}/".encode() in command.read_bytes():
                    os.kill(int(command.parent.name), signal.SIGKILL)
        for mount in reversed(pathlib.Path("/proc/self/mounts").read_text().splitlines()):
            if (at := mount.split()[1]).startswith(f"{self.directory}/"):
                subprocess.run(["umount", "-l", at], check=False, capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def copy_program(program, root, at):
    """A program and the libraries it names, at the paths where it looks for them."""
    target = root / at
    target.parent.mkdir(parents=True, exist_ok=True)
    # Names and lines are most of an unoptimised program, and nobody debugs it here.
    subprocess.run(["strip", "-o", target, program], check=True)
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    for library in re.findall(r"(/\S+) \(0x", linked):
        copy = root / library.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copy2(library, copy)


def build_images(engine, tag):
    """The images of deploy/Dockerfile, its build stage replaced by the programs built for the tests, which are not static:
    their libraries come along. From `FROM scratch` on, every line is the file's own."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    _, runtime = text.split("FROM scratch AS runtime\n")
    build = engine.directory / "build"
    for program in ("router", "bodylog-listener", "bodylog-exporter", "llmctl"):
        copy_program(BIN / program, build, f"out/{program}")
    for state in re.search(r"mkdir -p (/state/.*)", text).group(1).split():
        (build / state.lstrip("/")).mkdir(parents=True)
    certificates = build / "etc/ssl/certs/ca-certificates.crt"
    certificates.parent.mkdir(parents=True)
    shutil.copy2("/etc/ssl/certs/ca-certificates.crt", certificates)
    libraries = "".join(f"COPY --from=build /{at} /{at}\n" for at in ("lib", "lib64", "usr") if (build / at).exists())
    file = engine.directory / "Containerfile"
    file.write_text(f"FROM scratch AS runtime\n{libraries}{runtime}")
    for target in re.findall(r"^FROM runtime AS (\S+)$", runtime, re.MULTILINE):
        _build(engine, f"{target}:{tag}", file, "--build-context", f"build={build}", "--target", target)
    try:
        engine.run("run", "--rm", "--read-only", "--net=none", f"llm-router/llmctl:{tag}", "--version")
    except subprocess.CalledProcessError as error:
        # Some machines have the programs and not the kernel for them.
        raise Unavailable(f"podman cannot run a container: {error.stderr.strip()[-500:]}") from None

    for program in ("prometheus", "promtool"):
        copy_program(shutil.which(program), build, f"bin/{program}")
    (build / "prometheus").mkdir()
    file.write_text(
        f"FROM scratch\n{libraries}COPY --from=build /bin /bin\nCOPY --from=build --chown=65534:65534 /prometheus /prometheus\n"
        'ENV PATH=/bin\nUSER 65534\nENTRYPOINT ["/bin/prometheus"]\n'
    )
    _build(engine, f"prometheus:{tag}", file, "--build-context", f"build={build}")


def _build(engine, name, file, *arguments):
    # Nothing in the files comes from the context, and an empty one is sent at once.
    context = engine.directory / "context"
    context.mkdir(exist_ok=True)
    engine.run("build", "-q", "--format", "docker", *arguments, "-t", f"llm-router/{name}", "-f", str(file), str(context))
