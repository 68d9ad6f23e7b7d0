"""The compose file, held against the specification's schema and against what the pages promise."""

import json
import re
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from protocol.settings import Settings
from tests.compose.file import COMPOSE, OURS, ROLES, ROOT, SERVICES, TEXT, make_secrets
from tokenfleet.cli.durations import seconds_of
from tokenfleet.cli.gateway import command as gateway_command
from tokenfleet.cli.worker import command as worker_command

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_file_keeps_to_the_specification() -> None:
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(schema.read_text()))


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_runs_as_root_or_has_a_capability(name: str) -> None:
    service = SERVICES[name]
    assert service["user"].split(":")[0] not in ("0", "root")
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]


@pytest.mark.parametrize("name", SERVICES)
def test_root_filesystems_are_read_only(name: str) -> None:
    assert SERVICES[name]["read_only"] is True


def test_ports_are_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_has_a_healthcheck_and_a_pinned_image(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]
    assert ":" in SERVICES[name]["image"]
    assert not SERVICES[name]["image"].endswith(":latest")


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_reaches_into_the_host(name: str) -> None:
    service = SERVICES[name]
    assert not {"privileged", "cap_add", "devices", "pid", "network_mode", "userns_mode"} & service.keys()
    # A folder of the host's only where the caller names one; never the engine's own socket.
    mounts = [volume for volume in service.get("volumes", []) if volume.startswith(("/", ".", "~"))]
    assert not mounts
    # torch's processes share memory; nobody else may.
    assert ("ipc" in service) == (name == "worker-gpu")


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_stands_in_the_file(name: str) -> None:
    service = SERVICES[name]
    urls = re.findall(r"\w+://\S+", json.dumps(service))
    assert not [url for url in urls if urlsplit(url).password]
    secret = [key for key in service.get("environment", {}) if key.endswith(("TOKEN", "KEY", "PASSWORD"))]
    assert all(service["environment"][key].startswith("${") for key in secret)
    ignored = [(ROOT / name).read_text().split() for name in (".gitignore", ".dockerignore")]
    assert all("secrets" in {line.strip("/") for line in lines} for lines in ignored)


@pytest.mark.parametrize("name", OURS)
def test_each_role_logs_in_as_a_user_of_its_own(name: str) -> None:
    service = SERVICES[name]
    own, metrics = service["secrets"]
    user = urlsplit(service["environment"]["TOKENFLEET_REDIS_URL"]).username
    assert (own["source"], own["target"], metrics) == (user, "redis", "metrics")
    assert service["environment"]["TOKENFLEET_REDIS_PASSWORD_FILE"] == "/run/secrets/redis"
    assert user not in ("default", "operator")
    others = [SERVICES[other]["environment"]["TOKENFLEET_REDIS_URL"] for other in OURS if other != name]
    assert service["environment"]["TOKENFLEET_REDIS_URL"] not in others
    words = service["command"]
    if "--label" in words:
        assert user == f"worker-{words[words.index('--label') + 1]}"


def test_every_secret_is_a_file_that_the_script_makes(secrets: Path) -> None:
    named = {name: entry["file"] for name, entry in COMPOSE["secrets"].items()}
    assert named == {name: f"./secrets/{name}" for name in named}
    made = {path.name for path in secrets.iterdir()}
    assert named.keys() <= made
    used = [
        word if isinstance(word, str) else word["source"]
        for each in SERVICES.values()
        for word in each.get("secrets", [])
    ]
    assert set(used) == named.keys()


def test_passwords_differ_stay_and_stand_in_the_users_file_as_hashes(secrets: Path) -> None:
    users = (secrets / "users.acl").read_text()
    passwords = [path.read_text() for path in secrets.iterdir() if path.name != "users.acl"]
    assert len(set(passwords)) == len(passwords) == users.count("\n") - 1
    assert min(map(len, passwords)) == 48
    assert not [password for password in passwords if password in users]
    assert secrets.stat().st_mode & 0o777 == 0o700
    (secrets / "metrics").unlink()
    make_secrets(secrets)
    assert (secrets / "scheduler").read_text() in passwords
    assert (secrets / "metrics").read_text() not in passwords
    # All but the one new password's hash is as it was.
    again = (secrets / "users.acl").read_text().splitlines()
    assert [line for line in users.splitlines() if line not in again] == [
        line for line in users.splitlines() if line.startswith("user metrics ")
    ]


def test_the_images_are_pinned_and_end_without_root() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    bases = [stage.split(maxsplit=1)[0] for stage in stages]
    assert all(":" in base and not base.endswith(":latest") for base in bases)
    served = [stage for stage in stages if "ENTRYPOINT" in stage]
    users = [re.findall(r"^USER (\d+):", stage, re.MULTILINE)[-1] for stage in served]
    assert len(users) == 2
    assert "0" not in users
    # What is left out of the build can't end up in an image.
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv"} <= {line.strip("/") for line in ignored}


def test_a_worker_has_time_to_drain() -> None:
    grace_s = [seconds_of(SERVICES[name]["stop_grace_period"]) for name in OURS if name.startswith("worker")]
    assert min(grace_s) >= Settings().drain_s + 10


def test_the_gateway_can_end_what_it_answers_and_is_found_where_the_file_says() -> None:
    word, *arguments = SERVICES["gateway"]["command"]
    assert word == "gateway"
    with gateway_command.make_context("gateway", arguments) as context:
        assert seconds_of(SERVICES["gateway"]["stop_grace_period"]) >= context.params["grace"] + 10
        port = context.params["port"]
    assert SERVICES["gateway"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f" http://127.0.0.1:{port}/v1. " in TEXT


def test_the_gpu_profile_keeps_to_the_conventions_of_vllms_image() -> None:
    gpu = SERVICES["worker-gpu"]
    assert [name for name in SERVICES if "gpu" in SERVICES[name].get("profiles", [])] == ["worker-gpu"]
    assert (gpu["profiles"], gpu["ipc"], gpu["user"]) == (["gpu"], "host", "2000:0")
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    homes = dict(volume.rsplit(":", 1)[::-1] for volume in gpu["volumes"])
    assert {"/home/vllm", "/home/vllm/.cache/huggingface"} == homes.keys()
    assert f"FROM vllm/vllm-openai:v0.33.0 AS {gpu['build']['target']}\n" in DOCKERFILE


@pytest.mark.parametrize("name", [name for name in OURS if name.startswith("worker")])
def test_the_command_of_a_worker_is_one(name: str) -> None:
    """Every flag is the worker's, up to `--`."""
    word, *arguments = SERVICES[name]["command"]
    assert word == "worker"
    # It stands in the image; here another one may be.
    arguments = [sys.executable if argument == "/usr/bin/python3" else argument for argument in arguments]
    with worker_command.make_context("worker", arguments) as context:
        assert context.params["models"]


def test_the_images_say_what_is_in_them() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in OURS:
        assert SERVICES[name]["image"].endswith(f":{version}")
    assert DOCKERFILE.count('ENTRYPOINT ["tokenfleet"]') == 2
    assert DOCKERFILE.count("--require-hashes") == 2


@pytest.mark.parametrize("name", ["batch-runner", "gateway"])
def test_the_store_is_a_volume_that_the_runner_and_the_gateway_may_write_to(name: str) -> None:
    (mount,) = SERVICES[name]["volumes"]
    assert mount == "batches:/store"
    assert SERVICES[name]["command"][-2:] == ["--store", "/store"]
    volume, folder = mount.split(":")
    assert volume in COMPOSE["volumes"]
    owner = SERVICES[name]["user"].split(":")[0]
    assert f"RUN install -d -o {owner} -g {owner} -m 0700 {folder}\n" in DOCKERFILE


def test_each_role_is_scraped_and_one_that_always_runs_by_a_fixed_name() -> None:
    scraped = yaml.safe_load((ROOT / "deploy" / "observe" / "prometheus.yml").read_text())["scrape_configs"]
    roles, gateways = ({target for group in job["static_configs"] for target in group["targets"]} for job in scraped)
    ports = {name: SERVICES[name]["environment"]["TOKENFLEET_METRICS_PORT"] for name in OURS}
    assert roles == {f"{name}:{ports[name]}" for name in ROLES if name != "gateway"}
    assert gateways == {f"gateway:{SERVICES['gateway']['ports'][0].rpartition(':')[2]}"}
    # What runs only with its profile is no target that is down without it.
    (looked_up,) = scraped[0]["dns_sd_configs"]
    assert set(looked_up["names"]) == set(OURS) - set(ROLES)
    assert {ports[name] for name in looked_up["names"]} == {str(looked_up["port"])}


def test_the_metrics_profile_has_each_file() -> None:
    assert [name for name in SERVICES if "metrics" in SERVICES[name].get("profiles", [])] == ["prometheus", "grafana"]
    used = [config["source"] for each in SERVICES.values() for config in each.get("configs", [])]
    assert sorted(used) == sorted(COMPOSE["configs"])
    assert all((ROOT / entry["file"]).is_file() for entry in COMPOSE["configs"].values())
    # Where Grafana looks for dashboards is where they are put.
    (provider,) = yaml.safe_load((ROOT / "deploy" / "observe" / "grafana-boards.yml").read_text())["providers"]
    boards = [config["target"] for config in SERVICES["grafana"]["configs"] if config["target"].endswith(".json")]
    assert {str(Path(target).parent) for target in boards} == {provider["options"]["path"]}
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in boards
