"""The boards as files: what they are made from, their structure, and the names they ask for."""

import collections
import json

import board
import build
import pytest
import sources

WINDOW = "1m"


def test_the_boards_are_what_their_source_makes():
    for made in build.BOARDS:
        path = build.OUT / f"{made['uid']}.json"
        assert path.read_text() == board.text(made), "run python3 deploy/grafana/source/build.py"
    assert {path.stem for path in sources.BOARDS} == {made["uid"] for made in build.BOARDS}


@pytest.mark.parametrize("board", sources.boards(), ids=lambda board: board["uid"])
def test_structure(board):
    panels = list(sources.panels(board))
    everything = panels + [panel for panel in board["panels"] if panel["type"] == "row"]
    ids = [panel["id"] for panel in everything]
    assert len(ids) == len(set(ids))
    titles = collections.Counter(panel["title"] for panel in panels)
    assert max(titles.values()) == 1, titles.most_common(3)
    for panel in panels:
        name = panel["title"]
        assert panel["description"].endswith("."), name
        assert panel["fieldConfig"]["defaults"]["unit"], name
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, name
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references)), name
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"], name
    for key in ("from", "to"):
        assert board["time"][key].startswith("now")
    names = [variable["name"] for variable in board["templating"]["list"]]
    assert names[0] == "datasource" and "route" in names


def test_the_boards_have_their_own_names():
    uids = [board["uid"] for board in sources.boards()]
    assert len(set(uids)) == len(uids) == 2
    traffic = next(board for board in sources.boards() if board["uid"] == "llm-traffic")
    assert {"route", "model", "peer"} <= {variable["name"] for variable in traffic["templating"]["list"]}


@pytest.mark.parametrize("board", sources.boards(), ids=lambda board: board["uid"])
def test_no_panel_lies_on_another(board):
    taken = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["w"] > 0 and place["h"] > 0 and place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                assert other == panel["title"], f"{panel['title']} lies on {other}"


def test_every_metric_that_is_asked_for_is_documented():
    """So a renamed metric cannot leave an empty panel behind."""
    recorded = {rule["record"] for rule in sources.rules("record")}
    known = sources.documented() | recorded
    queries = [
        *sources.board_queries(WINDOW), *sources.recordings(),
        *(sources.Query(name, rule["expr"]) for name, rule in sources.alerts().items()),
        *(sources.Query(where, selector) for where, selector, _ in sources.variables()),
    ]
    for query in queries:
        for name in sources.names(query.expr):
            assert name in known or sources.FOREIGN.fullmatch(name), f"{query.where} asks for {name}, which docs/metrics.md does not know"


def test_variables_of_a_board_are_those_its_queries_use():
    for one in sources.boards():
        text = json.dumps(one["panels"])
        for variable in one["templating"]["list"]:
            assert f"${variable['name']}" in text or f"${{{variable['name']}}}" in text, variable["name"]
