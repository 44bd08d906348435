"""The files of deploy/ fit the schemas of Kubernetes and Compose, each other, and dtq. No engine runs them here."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import typer
import yaml

from dtq.cli.program import program
from dtq.metrics import HISTOGRAMS, QUEUE_METRICS, WORKERS
from dtq.settings import Settings, settings_table

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
SCHEMAS = Path(__file__).parent / "schemas"
NO_SCHEMA = {"keda.sh/v1alpha1/ScaledObject", "kustomize.config.k8s.io/v1beta1/Kustomization"}
LAST_WORDS_S = 5.0
"""What a worker may take behind its graces (supervisor.py)."""
OF_PROGRAMS = {"DTQ_LOG_JSON", "DTQ_LOG_LEVEL"}


class Strict(yaml.SafeLoader):
    """Refuses a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.value != "<<"]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key stands twice: {keys}"
        return super().construct_mapping(node, deep)


def load(path: Path) -> list[Any]:
    """Every document of a file."""
    return list(yaml.load_all(path.read_text(), Strict))


def objects() -> dict[tuple[str, str], Any]:
    """Every Kubernetes object by kind and name."""
    return {(o["kind"], o["metadata"]["name"]): o for path in KUBERNETES for o in load(path) if "metadata" in o}


def workloads() -> dict[str, Any]:
    return {name: o for (kind, name), o in objects().items() if kind in ("Deployment", "StatefulSet")}


def pod(name: str) -> Any:
    return workloads()[name]["spec"]["template"]["spec"]


def environment(container: Any) -> dict[str, str]:
    """Variables of a container; where they come from a secret, the secret's value."""
    found: dict[str, str] = {}
    for variable in container.get("env", ()):
        if "value" in variable:
            found[variable["name"]] = variable["value"]
        else:
            reference = variable["valueFrom"]["secretKeyRef"]
            found[variable["name"]] = objects()["Secret", reference["name"]]["stringData"][reference["key"]]
    return found


def compose() -> Any:
    return load(DEPLOY / "compose.yaml")[0]


def dtq_commands() -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Where, words and variables of everything that runs dtq."""
    for name in ("worker", "api"):
        service = compose()["services"][name]
        yield f"compose {name}", service["command"], service["environment"]
        (container,) = pod(f"dtq-{name}")["containers"]
        yield f"kubernetes {name}", container["args"], environment(container)
    for word in re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE):
        yield "Dockerfile", json.loads(word), {}


# --- schemas ---


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_kubernetes_knows_every_field(path: Path) -> None:
    """By its own description (1.31), with no field that it does not know."""
    schemas = json.loads((SCHEMAS / "kubernetes.json").read_text())
    for document in load(path):
        kind = f"{document['apiVersion']}/{document['kind']}"
        if kind in NO_SCHEMA:
            continue
        schema = {"$ref": f"#/$defs/{schemas['kinds'][kind]}", "$defs": schemas["$defs"]}
        errors = [
            f"{list(e.instance_path)}: {e.message}" for e in jsonschema_rs.validator_for(schema).iter_errors(document)
        ]
        assert errors == []


@pytest.mark.parametrize(
    "change",
    [lambda d: d["spec"].update(replica=2), lambda d: d["spec"]["template"]["spec"].pop("containers"),
     lambda d: d["spec"]["template"]["spec"].update(terminationGracePeriodSeconds="40")],
)  # fmt: skip
def test_the_schema_would_notice(change: Any) -> None:
    schemas = json.loads((SCHEMAS / "kubernetes.json").read_text())
    schema = {"$ref": f"#/$defs/{schemas['kinds']['apps/v1/Deployment']}", "$defs": schemas["$defs"]}
    worker = objects()["Deployment", "dtq-worker"]
    assert jsonschema_rs.is_valid(schema, worker)
    change(worker)
    assert not jsonschema_rs.is_valid(schema, worker)


def test_compose_knows_every_field() -> None:
    """By the schema of the specification, which is older than the project's name at the top."""
    document = compose()
    assert document.pop("name") == "dtq"
    validator = jsonschema_rs.validator_for(json.loads((SCHEMAS / "compose.json").read_text()))
    assert [f"{list(error.instance_path)}: {error.message}" for error in validator.iter_errors(document)] == []


# --- what fits together ---


def test_every_file_is_named_or_said_to_be_a_choice() -> None:
    text = (DEPLOY / "kubernetes" / "kustomization.yaml").read_text()
    names = {path.name for path in KUBERNETES} - {"kustomization.yaml"}
    assert names == set(re.findall(r"^ *(?:# )?- (\w+\.yaml)$", text, re.MULTILINE))


def test_labels_select_what_they_should() -> None:
    for name, workload in workloads().items():
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items(), name
    for (kind, name), service in objects().items():
        if kind != "Service":
            continue
        (target,) = [
            w for w in workloads().values()
            if service["spec"]["selector"].items() <= w["spec"]["template"]["metadata"]["labels"].items()
        ]  # fmt: skip
        ports = {port["name"] for c in target["spec"]["template"]["spec"]["containers"] for port in c["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, name
    for kind in ("ScaledObject", "HorizontalPodAutoscaler"):
        assert objects()[kind, "dtq-worker"]["spec"]["scaleTargetRef"]["name"] in workloads()
    assert "replicas" not in workloads()["dtq-worker"]["spec"], "the autoscaler's number would be set back"


def test_the_redis_url_names_the_redis_of_the_files() -> None:
    url = environment(pod("dtq-worker")["containers"][0])["DTQ_REDIS_URL"]
    assert url == f"redis://{objects()['Service', 'dtq-redis']['metadata']['name']}:6379/0"
    assert "redis://redis:6379" in compose()["services"]["worker"]["environment"]["DTQ_REDIS_URL"]
    for command in (compose()["services"]["redis"]["command"], pod("dtq-redis")["containers"][0]["args"]):
        assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
        assert command[command.index("--appendonly") + 1] == "yes"


def seconds(text: str) -> float:
    assert re.fullmatch(r"\d+s", text)
    return float(text[:-1])


def test_a_worker_has_the_time_to_drain() -> None:
    """Kubernetes and Compose wait longer than the longest drain: graces, last words, and what stands before SIGTERM."""
    settings = Settings()
    (container,) = pod("dtq-worker")["containers"]
    for variables, allowed in (
        (environment(container), pod("dtq-worker")["terminationGracePeriodSeconds"]),
        (compose()["services"]["worker"]["environment"], seconds(compose()["services"]["worker"]["stop_grace_period"])),
    ):
        grace = float(variables["DTQ_SHUTDOWN_GRACE_S"])
        assert grace == settings.shutdown_grace_s
        assert allowed >= grace + settings.kill_grace_s + LAST_WORDS_S + 5
    assert "lifecycle" not in container, "count a preStop in"


def test_the_api_has_the_time_to_end_requests() -> None:
    serving = importlib.import_module("dtq.api.serving")
    spec = pod("dtq-api")
    (container,) = spec["containers"]
    before = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["terminationGracePeriodSeconds"] >= before + serving.GRACE_S + 5
    assert seconds(compose()["services"]["api"]["stop_grace_period"]) >= serving.GRACE_S + 5
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"


def test_nothing_runs_as_root_or_writes_where_it_should_not() -> None:
    for name in workloads():
        spec = pod(name)
        assert spec["securityContext"]["runAsNonRoot"], name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert not spec["automountServiceAccountToken"], name
        for container in spec["containers"]:
            limits = container["securityContext"]
            assert (limits["allowPrivilegeEscalation"], limits["readOnlyRootFilesystem"]) == (False, True), name
            assert limits["capabilities"] == {"drop": ["ALL"]}, name
            assert "memory" in container["resources"]["limits"], name
    user = re.search(r"^USER (\d+):\d+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert int(user[1]) == pod("dtq-worker")["securityContext"]["runAsUser"]


def test_services_do_not_confuse_dtq() -> None:
    """Kubernetes makes variables of a service's name; with `dtq-…` they begin as dtq's own do."""
    names = {row.env for row in settings_table()} | OF_PROGRAMS
    for kind, name in objects():
        if kind == "Service":
            start = name.upper().replace("-", "_")
            made = {f"{start}_SERVICE_HOST": "10.0.0.1", f"{start}_SERVICE_PORT": "80", f"{start}_PORT": "tcp://10.0.0.1:80",
                    f"{start}_PORT_80_TCP": "tcp://10.0.0.1:80", f"{start}_PORT_80_TCP_ADDR": "10.0.0.1"}  # fmt: skip
            assert not names & made.keys()
            Settings.from_environment(made)


# --- what dtq says to them ---


def test_commands_and_variables_are_dtqs_own() -> None:
    known = {row.env for row in settings_table()} | OF_PROGRAMS
    commands = typer.main.get_command(program).commands  # type: ignore[attr-defined]
    for where, words, variables in dtq_commands():
        assert variables.keys() <= known, where
        command = commands[words[0]]
        context = command.make_context("dtq", [str(word) for word in words[1:]], resilient_parsing=False)
        assert context.params["application"] == "tasks:app", where
        readable = {name: value for name, value in variables.items() if not str(value).startswith("${")}
        Settings.from_environment({name: str(value) for name, value in readable.items()})


def test_addresses_that_others_reach_have_a_key() -> None:
    for where, words, variables in dtq_commands():
        if words[0] == "api":
            assert words[words.index("--host") + 1] == "0.0.0.0", where  # noqa: S104
            assert "DTQ_API_KEY" in variables, where
    assert all(port.startswith("127.0.0.1:") for s in compose()["services"].values() for port in s.get("ports", ()))
    assert ":?" in compose()["services"]["api"]["environment"]["DTQ_API_KEY"], "no key, no start"


def test_metrics_are_where_they_are_looked_for() -> None:
    annotations = workloads()["dtq-worker"]["spec"]["template"]["metadata"]["annotations"]
    (container,) = pod("dtq-worker")["containers"]
    port = container["args"][container["args"].index("--metrics-port") + 1]
    assert (annotations["prometheus.io/port"], annotations["prometheus.io/path"]) == (port, "/metrics")
    assert {str(p["containerPort"]) for p in container["ports"]} == {port}
    prometheus = load(DEPLOY / "prometheus.yaml")[0]
    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    name, _, port = target.partition(":")
    words = compose()["services"][name]["command"]
    assert words[words.index("--metrics-port") + 1] == port


def test_scaling_asks_for_metrics_that_there_are() -> None:
    names = {metric.name for metric in QUEUE_METRICS} | set(HISTOGRAMS) | {WORKERS[0]}
    keda = objects()["ScaledObject", "dtq-worker"]["spec"]
    (trigger,) = keda["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "Value")
    assert {"serverAddress", "query", "threshold"} <= trigger["metadata"].keys()
    assert all(isinstance(value, str) for value in trigger["metadata"].values()), "KEDA takes texts only"
    assert set(re.findall(r"dtq_\w+", trigger["metadata"]["query"])) == {"dtq_queue_oldest_age_seconds"} <= names
    assert 1 <= keda["minReplicaCount"] < keda["maxReplicaCount"]
    (metric,) = objects()["HorizontalPodAutoscaler", "dtq-worker"]["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] in names
    for expression in re.findall(r"expr: (.*)", (ROOT / "docs" / "metrics.md").read_text()):
        assert set(re.findall(r"dtq_\w+", expression)) <= names, expression


def test_the_image_is_made_of_what_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for source in shlex.split(line)[:-1]:
            assert (ROOT / source).exists(), source
            ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
            assert f"!{source}" in ignored, f"{source} is left out of the build's context"
    extras = re.search(r"\.whl\)\[([\w,]+)\]", text)
    assert extras is not None
    optional = re.findall(
        r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2], re.MULTILINE
    )
    assert set(extras[1].split(",")) <= set(optional)


def test_the_application_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DEPLOY / "app"))
    tasks = importlib.import_module("tasks")
    assert tasks.greet(name="Ada") == "Hello Ada"
    assert {handler.name for handler in tasks.app.registry} == {"tasks.greet", "tasks.nap"}


def test_the_task_of_the_example_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API refuses what comes without its content type, and curl does not say it is JSON by itself."""
    monkeypatch.syspath_prepend(str(DEPLOY / "app"))
    comment = "\n".join(line.removeprefix("#") for line in (DEPLOY / "compose.yaml").read_text().splitlines()[:9])
    words = shlex.split(comment[comment.index("curl ") :].partition("\n\n")[0].replace("\\\n", " "))
    assert "Content-Type: application/json" in words
    task = json.loads(words[words.index("-d") + 1])
    handler = importlib.import_module("tasks").app.registry.get(task["task_type"])
    assert handler is not None
    handler.function(**task["payload"])
