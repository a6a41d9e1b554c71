"""The files of deploy/: what they say fits the server, and the steps of the Dockerfile make one that works."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.serving import wait_until
from whilst.server.app import PROBES
from whilst.server.protocol import Limits

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DRAIN = 2 * Limits().drain  # seconds that a stop may take
USER = 10001


def load(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: names and the rest of the line."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def test_the_container_of_compose() -> None:
    (compose,) = load("compose.yaml")
    server, caddy = compose["services"]["whilst"], compose["services"]["caddy"]
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert server["read_only"]
    assert server["tmpfs"] == ["/tmp"]
    assert int(server["stop_grace_period"].removesuffix("s")) > DRAIN
    assert "ports" not in server, "Caddy alone is reached from outside"
    assert caddy["depends_on"]["whilst"]["condition"] == "service_healthy"
    caddyfile = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    assert "reverse_proxy whilst:8000" in caddyfile
    assert "{$WHILST_DOMAIN}" in caddyfile
    assert caddyfile.count("{") == caddyfile.count("}")


def test_kubernetes() -> None:
    found = {table["kind"]: table for table in load("kubernetes.yaml")}
    pod = found["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["securityContext"]["runAsUser"] == USER
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert {volume["mountPath"] for volume in container["volumeMounts"]} == {"/tmp"}
    assert pod["spec"]["terminationGracePeriodSeconds"] > DRAIN
    assert {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("readiness", "liveness")} == set(PROBES)
    (port,) = container["ports"]
    assert port["containerPort"] == 8000
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    labels = pod["metadata"]["labels"]
    for selector in (found["Deployment"]["spec"]["selector"]["matchLabels"], found["Service"]["spec"]["selector"]):
        assert selector == labels
    target = found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", found["Deployment"]["metadata"]["name"])


def test_ray_serve() -> None:
    (settings,) = load("ray-serve.yaml")
    (application,) = settings["applications"]
    (deployment,) = application["deployments"]
    text = (ROOT / "whilst" / "server" / "ray.py").read_text(encoding="utf-8")
    assert application["import_path"] == "whilst.server.ray:build"
    assert "def build(" in text
    assert f'NAME = "{deployment["name"]}"' in text
    limits = Limits()
    assert deployment["max_ongoing_requests"] == 2 * limits.sessions + limits.watchers + 16
    assert deployment["autoscaling_config"]["target_ongoing_requests"] < limits.sessions


def test_systemd(tmp_path: Path) -> None:
    text = (DEPLOY / "whilst.service").read_text(encoding="utf-8")
    settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert int(settings["TimeoutStopSec"]) > DRAIN
    program, *arguments = shlex.split(settings["ExecStart"])
    assert arguments[0] == "serve"
    if not (verify := shutil.which("systemd-analyze")):
        pytest.skip("systemd is not installed")
    unit = tmp_path / "whilst.service"
    unit.write_text(text.replace(program, sys.executable))
    done = subprocess.run([verify, "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_options_are_those_of_the_server() -> None:
    """Of the entry point, compose and systemd."""
    from typer.testing import CliRunner

    from whilst.cli.main import app

    (compose,) = load("compose.yaml")
    service = "\n".join(
        re.findall(r"^ExecStart=.*$", (DEPLOY / "whilst.service").read_text(encoding="utf-8"), re.M)
    )
    text = " ".join([dict(instructions())["ENTRYPOINT"], *compose["services"]["whilst"]["command"], service])
    known = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["serve", "--help"]).output
    for option in set(re.findall(r"(?<!\S)\"?(--[a-z-]+)", text)):
        assert option in known


@pytest.mark.slow
def test_the_steps_of_the_dockerfile(tmp_path: Path) -> None:
    """Without containers, in a temporary folder; what they install then runs and writes nothing but in /tmp."""
    places = {"/src": f"{tmp_path}/src", "/venv": f"{tmp_path}/venv"}
    stages = [at for at, (name, _) in enumerate(instructions()) if name == "FROM"]
    build, final = instructions()[stages[0] : stages[1]], instructions()[stages[1] :]
    source = Path(places["/src"])
    source.mkdir()
    for name, rest in build:
        if name == "COPY":
            *paths, target = rest.split()
            for path in paths:
                copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
                to = source / target / (path if copy is shutil.copytree and target == path else Path(path).name)
                to = source / target if copy is shutil.copytree else to
                to.parent.mkdir(parents=True, exist_ok=True)
                copy(ROOT / path, to)
        if name == "RUN":
            line = rest.replace("/venv", places["/venv"]).replace("python -m venv", f"{sys.executable} -m venv")
            done = subprocess.run(line, shell=True, cwd=source, capture_output=True, text=True, env=clean())
            if "Could not find a version" in done.stderr or "connection" in done.stderr.lower():
                pytest.skip("no package index is reached")
            assert done.returncode == 0, done.stderr
    settings = dict(final)
    assert settings["USER"] == str(USER)
    serve_and_check(Path(places["/venv"]), settings, tmp_path)


@pytest.mark.slow
def test_the_image() -> None:
    def docker(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["docker", *words], cwd=ROOT, capture_output=True, text=True)

    if shutil.which("docker") is None or docker("info").returncode:
        pytest.skip("no container engine runs here")
    built = docker("build", "-q", "-f", "deploy/Dockerfile", ".")
    assert built.returncode == 0, built.stderr
    container = docker("run", "-d", "--read-only", "--tmpfs", "/tmp", built.stdout.strip()).stdout.strip()
    try:
        state = ("inspect", "-f", "{{.State.Health.Status}}", container)
        wait_until(lambda: docker(*state).stdout.strip() == "healthy", "the container is healthy", 120)
        docker("stop", container)
        assert docker("inspect", "-f", "{{.State.ExitCode}}", container).stdout.strip() == "0"
    finally:
        docker("rm", "-f", container)


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "cache" not in path.relative_to(folder).parts[0]}


def serve_and_check(venv: Path, settings: dict[str, str], folder: Path) -> None:
    entry = [
        word.replace("8000", "0").replace("0.0.0.0", "127.0.0.1") for word in yaml.safe_load(settings["ENTRYPOINT"])
    ]
    cache = folder / "cache"
    cache.mkdir()
    before = files(folder)
    environment = clean() | {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    program = venv / "bin" / entry[0]
    server = subprocess.Popen([program, *entry[1:]], stderr=subprocess.PIPE, text=True, cwd="/", env=environment)
    try:
        assert server.stderr is not None
        output = ""
        while "token" not in output:
            line = server.stderr.readline()
            assert line, output
            output += line
        port = re.findall(r"127\.0\.0\.1:(\d+)", output)[0]
        check = yaml.safe_load(settings["HEALTHCHECK"].partition("CMD ")[2])
        assert check[0] == "python"
        subprocess.run([venv / "bin" / "python", *(word.replace("8000", port) for word in check[1:])], check=True)
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/translate", b'{"text": "Thank you very much."}'
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert "event: final" in answer.read().decode()
        server.send_signal(getattr(signal, settings["STOPSIGNAL"]))
        assert server.wait(60) == 0
        assert files(folder) == before, "nothing is written but in /tmp"
    finally:
        server.kill()
        server.communicate()
