"""The container files name what is really there, and nothing runs as root."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).resolve().parents[2]
_COMPOSE = yaml.safe_load((_ROOT / "docker-compose.yml").read_text())
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]
_LASTING = sorted(set(_SERVICES) - {"migrate"})


def test_all_parts_of_production_are_there() -> None:
    assert _LASTING == ["beat", "events", "postgres", "proxy", "redis", "scheduler", "web", "worker"]


@pytest.mark.parametrize("name", sorted(_SERVICES))
def test_service_is_an_ordinary_user_without_privileges(name: str) -> None:
    service = _SERVICES[name]
    assert service["user"].split(":")[0] not in ("0", "root")
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", _LASTING)
def test_service_has_a_health_check_and_comes_back(name: str) -> None:
    service = _SERVICES[name]
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize(("name", "folder"), [("postgres", "/var/lib/postgresql/data"), ("redis", "/data")])
def test_data_outlives_the_container(name: str, folder: str) -> None:
    assert f"{name}:{folder}" in _SERVICES[name]["volumes"]
    assert name in _COMPOSE["volumes"]


def test_nothing_starts_before_the_tables_are_there() -> None:
    for name in ("web", "events", "worker", "scheduler", "beat"):
        assert _SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


@pytest.mark.parametrize("name", ["web", "events", "worker", "scheduler", "beat", "migrate"])
def test_command_names_something_that_exists(name: str) -> None:
    command = _SERVICES[name]["command"]
    named = {"gunicorn": command[1].split(":")[0], "celery": command[2], "python": command[1]}[command[0]]
    file = named if named.endswith(".py") else f"{named.replace('.', '/')}.py"
    assert (_ROOT / file).is_file()


def test_each_queue_has_a_worker(settings: Any) -> None:
    routed = {route["queue"] for route in settings.CELERY_TASK_ROUTES.values()} | {settings.CELERY_TASK_DEFAULT_QUEUE}
    served = {
        _SERVICES[name]["command"][_SERVICES[name]["command"].index("--queues") + 1] for name in ("worker", "scheduler")
    }
    assert served == routed


def test_proxy_sends_traffic_to_services_that_exist() -> None:
    source, _, _ = _SERVICES["proxy"]["volumes"][0].partition(":")
    text = (_ROOT / source).read_text()
    assert set(re.findall(r"server (\w+):8000", text)) == {"web", "events"}
    assert (
        set(re.findall(r"/run/secrets/(\w+)", text)) == set(_SERVICES["proxy"]["secrets"]) == set(_COMPOSE["secrets"])
    )


def test_no_secret_is_written_down() -> None:
    for variable in ("TIDEGATE_SECRET_KEY", "POSTGRES_PASSWORD"):
        assert all(f"${{{variable}:?" in line for line in _lines_that_use(variable))


def _lines_that_use(variable: str) -> list[str]:
    lines = (_ROOT / "docker-compose.yml").read_text().splitlines()
    return [line for line in lines if variable in line and not line.startswith("#")]


def test_image_runs_as_a_user_of_its_own_and_without_build_tools() -> None:
    *_, last = re.split(r"^FROM ", (_ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert re.findall(r"^USER (\w+)$", last, re.MULTILINE) == ["tidegate"]
    assert "npm" not in last
    assert "pip install" not in last


def test_image_copies_only_files_that_exist() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (_ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert copied
    assert all((_ROOT / name).exists() for line in copied for name in line.split())
