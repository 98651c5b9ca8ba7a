"""The page and the trace of a plan: all figures are the plan's, and a browser shows them without asking the network."""

from __future__ import annotations

import html.parser
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import flowaware_core as fa
from tests.contract.staged import cluster, data, language, weights

CARD = fa.Device("card", fa.GIB, {"float32": 1e9}, 1e10)
CLUSTER = fa.Cluster(
    "two <nodes>", CARD, (fa.Level("node", 2, 1e9, 5e-6, shared=True), fa.Level("card", 4, 1e10, 1e-6))
)
BLOCKS, WIDTH = 4, 128


@pytest.fixture(scope="module")
def plan() -> fa.Plan:
    def step(state: Any, batch: Any) -> Any:
        def loss(state: Any) -> jax.Array:
            x = batch["x"]
            for number in range(BLOCKS):
                x = x + jnp.tanh(x @ state["params"][f"block_{number}"])
            return jnp.mean(x**2)

        value, found = jax.value_and_grad(loss)(state)
        return jax.tree.map(lambda w, g: w - 0.1 * g, state, found), value

    shape = jax.ShapeDtypeStruct
    state = {"params": {f"block_{number}": shape((WIDTH, WIDTH), "float32") for number in range(BLOCKS)}}
    task = fa.Task(step, (state, {"x": shape((64, WIDTH), "float32")}), carried={0: 0}, batch=(1,), name="four & more")
    return fa.plan(task, CLUSTER)


class Reader(html.parser.HTMLParser):
    """Collects what a page shows and what it would load, and sees that its elements close."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.loads, self.open = "", [], []  # type: ignore[var-annotated]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in ("meta", "line", "rect") or (tag == "rect" and not self.get_starttag_text().endswith("/>")):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag, attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_picture_adds_up(plan: fa.Plan) -> None:
    segments = plan.picture["segments"]
    assert sum(segment["compute_s"] for segment in segments) == pytest.approx(plan.predicted.compute_s)
    links = sum(sum(segment["links"].values()) for segment in segments)
    assert links == pytest.approx(plan.predicted.communication_s)
    held = plan.predicted.memory
    assert sum(plan.picture["memory"].values()) == held["arguments"] + held["temporaries"]
    assert {"params", "x"} <= set(plan.picture["memory"])
    assert sum(row["bytes"] for row in plan.picture["layouts"]) == held["arguments"]
    blocks = [row for row in plan.picture["layouts"] if "block" in row["name"]]
    assert {(row["name"], tuple(row["shape"])) for row in blocks} == {("0['params']['block_*']", (WIDTH, WIDTH))}
    assert sum(row["count"] for row in blocks) == BLOCKS


def test_a_page_is_whole_and_loads_nothing(plan: fa.Plan) -> None:
    text = fa.page(plan)
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    assert not reader.loads
    assert not re.search(r"@import|url\(|<script", text)
    assert "four & more on two <nodes>" in reader.text
    for name in (
        "What lies where",
        "at its fullest moment",
        "One step",
        "spent on",
        "else was looked at",
        "fsdp",
        plan.hash,
    ):
        assert name in reader.text
    assert fa.page(fa.Plan.from_json(json.loads(json.dumps(plan.to_json())))) == text


def test_a_trace_is_one_step(plan: fa.Plan) -> None:
    trace = json.loads(json.dumps(fa.timeline(plan)))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert sum(event["dur"] for event in events) == pytest.approx(1e6 * plan.predicted.step_s)
    ends = [event["ts"] + event["dur"] for event in events]
    assert all(event["ts"] == pytest.approx(end) for event, end in zip(events[1:], ends, strict=False))
    lanes = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert "compute" in lanes
    some = (axes for count in range(1, len(plan.axes) + 1) for axes in itertools.combinations(plan.axes, count))
    assert lanes <= {"compute", *map(" x ".join, some)}


@pytest.fixture(scope="module")
def staged() -> fa.Pipeline:
    training = fa.Training(language, optax.adam(1e-3), splits=True)
    state = jax.eval_shape(lambda: training.initial(weights(jax.random.key(0)), jax.random.key(1)))
    return fa.pipeline(training, state, data(), cluster(), micro_batches=4, name="three & more")


def test_a_page_of_stages_shows_each_and_the_timetable(staged: fa.Pipeline) -> None:
    text = fa.page(staged)
    reader = Reader()
    reader.feed(text)
    assert not reader.open and not reader.loads and not re.search(r"@import|url\(|<script", text)
    assert "three & more on two" in reader.text and "Stage 1: what lies where" in reader.text
    passes = re.findall(r"<title>stage (\d): (forward|backward) pass of micro-batch (\d)", text)
    assert len(passes) == len(set(passes)) == 4 + 4 + 4  # the last stage goes both ways in one pass


def test_a_trace_of_stages_is_one_step(staged: fa.Pipeline) -> None:
    events = [event for event in fa.timeline(staged)["traceEvents"] if event["ph"] == "X"]
    assert {event["tid"] for event in events} == {0, 1}
    end = max(event["ts"] + event["dur"] for event in events)
    assert end == pytest.approx(
        1e6 * staged.step_s, rel=0.3
    )  # entries overlap with passes, which the formula leaves out
    busy = sum(event["dur"] for event in events if event["tid"] == 1)
    assert busy == pytest.approx(1e6 * (4 * staged.stages[1].backward_s + staged.stages[1].update_s))


@pytest.mark.slow
def test_a_browser_shows_it(plan: fa.Plan, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium here; apt-get install chromium")
    (tmp_path / "plan.html").write_text(fa.page(plan))
    shot = tmp_path / "plan.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    options += [f"--screenshot={shot}", "--window-size=1000,1400", "--dump-dom"]
    found = subprocess.run(
        [browser, *options, f"file://{tmp_path}/plan.html"], capture_output=True, text=True, timeout=120, check=True
    )
    assert "What a step is spent on" in found.stdout
    assert found.stdout.count("<rect") == fa.page(plan).count("<rect")
    assert shot.read_bytes().startswith(b"\x89PNG")
