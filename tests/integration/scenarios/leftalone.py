"""What gets no files."""

from __future__ import annotations

from pyiceberg.view.metadata import ViewVersion

from tests.integration.scenarios.looks import Look, everywhere
from tests.integration.scenarios.scenario import Scenario
from tests.integration.scenarios.stage import SCHEMA, Known, Stage, folder

OFF, ON = {"sfn.enabled": "false"}, {"sfn.enabled": "true"}
ENCRYPTED = {"encryption.key-id": "a-key", "format-version": "3"}


def view(stage: Stage) -> list[Look]:
    query = {"type": "sql", "sql": "SELECT 1 AS id, 'x' AS item", "dialect": "spark"}
    namespace = {"default-namespace": [stage.namespace], "schema-id": 0}
    version = ViewVersion.model_validate({"version-id": 1, "representations": [query], **namespace})
    made = stage.catalog.create_view(stage.identifier("v"), SCHEMA, version)
    stage.tell_of("v")
    return everywhere(Known(stage.identifier("v"), folder(made.location()), str(made.uuid()), ""))


def encrypted(stage: Stage) -> list[Look]:
    return everywhere(stage.create("t", properties=ENCRYPTED))


def off(stage: Stage) -> list[Look]:
    stage.filled("t")
    return everywhere(stage.set("t", OFF))


def on(stage: Stage) -> list[Look]:
    stage.filled("t")
    stage.set("t", OFF)
    return everywhere(stage.set("t", ON))


SCENARIOS = (
    Scenario("view", view),
    Scenario("encrypted table", encrypted),
    Scenario("switched off by sfn.enabled=false", off),
    Scenario("… and on again", on),
)
