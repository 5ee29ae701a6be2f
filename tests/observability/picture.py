#!/usr/bin/env python3
"""Draws docs/traffic.svg: what Prometheus stored of a router that loses an engine and gets it back.

    target/clients/observability/bin/python tests/observability/picture.py [--png FILE]

Three simulated engines of four slots and eleven clients that ask again and again. Every line is the answer to a range query
against a real Prometheus; the queries stand in the picture's description. Nothing is smoothed or drawn by hand. The story takes
about two minutes; each run gives a new picture.
"""

import argparse
import html
import math
import pathlib
import random
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]

from stack import ROOT, free_port  # noqa: E402
from world import World  # noqa: E402

CLIENTS = 11
QUIET, LOST, BACK = 25, 40, 35  # Seconds before the engine dies, until it is back, and to the end.
WINDOW = "5s"

ROUTE = """
health_check_interval: 1s
health_ban_ttl: 3s
peers:
  - {{address: '{a}', name: gpu-a, max_concurrency: 4}}
  - {{address: '{b}', name: gpu-b, max_concurrency: 4}}
  - {{address: '{c}', name: gpu-c, max_concurrency: 4}}
"""

INK = ["#0969da", "#d1570a", "#1a7f37", "#8250df"]

# Title, unit, and lines: legend, query.
PANELS = [
    ("Requests", "per second", [
        ("answered (200)", f'sum (rate(llm_router_requests_total{{code="200"}}[{WINDOW}]))'),
        ("refused by the concurrency gate (429)", f'sum (rate(llm_router_refusals_total{{gate="concurrency"}}[{WINDOW}]))'),
    ]),
    ("In flight beside the limit", "requests", [
        ("in flight", "sum (llm_router_pool_in_flight)"),
        ("limit", "sum (llm_router_limit)"),
    ]),
    ("Time to first token", "milliseconds", [
        ("median", f"1000 * histogram_quantile(0.5, sum by (le) (rate(llm_router_ttft_seconds_bucket[{WINDOW}])))"),
        ("95th percentile", f"1000 * histogram_quantile(0.95, sum by (le) (rate(llm_router_ttft_seconds_bucket[{WINDOW}])))"),
    ]),
    ("Answers by peer", "per second", [
        (f"gpu-{name}", f'sum (rate(llm_router_requests_total{{code="200",peer="{{{name}}}"}}[{WINDOW}]))') for name in "abc"
    ]),
]


def record():
    """Plays the story; the lines of each panel, and when what happened, in seconds from the beginning."""
    ports = {name: free_port() for name in "abc"}
    flags = {name: ["--dialect", "vllm", "--slots", "4", "--ttft", "40ms", "--itl", "15ms", "--port", str(port)] for name, port in ports.items()}
    with World({"chat": ROUTE}, flags) as world:
        server = world.prometheus(native=False)

        def client(number):
            pauses = random.Random(number)

            def ask(turn):
                text = f"client {number} says: " + "a word or two " * (5 + turn % 20)
                status = world.chat("chat", text, max_tokens=80, headers={"x-session-id": f"client-{number}"})
                time.sleep(pauses.uniform(0, 0.3) if status == 200 else 0.5)

            return ask

        for number in range(CLIENTS):
            world.run(client(number))
        time.sleep(8)
        began = time.time()
        time.sleep(QUIET)
        died = time.time() - began
        world.engines["b"].kill()
        time.sleep(LOST)
        world.start_engine("b", flags["b"])
        back = time.time() - began
        time.sleep(BACK)
        ended = time.time()
        peers = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        panels = []
        for title, unit, lines in PANELS:
            drawn = []
            for legend, query in lines:
                asked = query
                for name, peer in peers.items():
                    asked = asked.replace(f"{{{name}}}", peer)
                series = server.ask("query_range", query=asked, start=began, end=ended, step=1)["result"]
                points = [(float(at) - began, float(value)) for one in series for at, value in one["values"] if math.isfinite(float(value))]
                assert points, asked
                drawn.append((legend, query, points))
            panels.append((title, unit, drawn))
        return panels, [(died, "gpu-b is killed"), (back, "gpu-b is back")], ended - began


def nice(top):
    """A round number at or above, and the step of the lines below it."""
    step = 10 ** math.floor(math.log10(max(top, 1e-9)))
    for factor in (0.2, 0.25, 0.5, 1, 2):
        if top / (step * factor) <= 5:
            return math.ceil(top / (step * factor)) * step * factor, step * factor
    return math.ceil(top / step) * step, step


W, H, GAP, LEFT, TOP, FOOT = 430, 250, 20, 44, 62, 26


def panel(x, y, title, unit, lines, events, seconds):
    top, step = nice(max(value for _, _, points in lines for _, value in points) * 1.05)
    inner_w, inner_h = W - LEFT - 8, H - TOP - FOOT

    def at(seconds_in, value):
        return f"{x + LEFT + seconds_in / seconds * inner_w:.1f},{y + TOP + inner_h * (1 - value / top):.1f}"

    out = [f'<text class="title" x="{x}" y="{y + 16}">{html.escape(title)}<tspan class="unit" dx="8">{unit}</tspan></text>']
    legend_x = x
    for ink, (legend, _, _) in zip(INK, lines):
        out.append(f'<line x1="{legend_x}" x2="{legend_x + 14}" y1="{y + 33}" y2="{y + 33}" stroke="{ink}" stroke-width="3"/>')
        out.append(f'<text class="small" x="{legend_x + 19}" y="{y + 37}">{html.escape(legend)}</text>')
        legend_x += 34 + len(legend) * 6
    value = 0.0
    while value <= top + 1e-9:
        _, line_y = at(0, value).split(",")
        out.append(f'<line class="grid" x1="{x + LEFT}" x2="{x + W - 8}" y1="{line_y}" y2="{line_y}"/>')
        out.append(f'<text class="small" text-anchor="end" x="{x + LEFT - 6}" y="{float(line_y) + 4:.1f}">{value:g}</text>')
        value += step
    for tick in range(0, int(seconds) + 1, 20):
        tick_x, _ = at(tick, 0).split(",")
        out.append(f'<text class="small" text-anchor="middle" x="{tick_x}" y="{y + H - 8}">{tick} s</text>')
    for when, what in events:
        when_x, _ = at(when, 0).split(",")
        out.append(f'<line class="event" x1="{when_x}" x2="{when_x}" y1="{y + TOP - 8}" y2="{y + TOP + inner_h}"/>')
        out.append(f'<text class="what" x="{float(when_x) + 4:.1f}" y="{y + TOP - 2}">{html.escape(what)}</text>')
    for ink, (_, _, points) in zip(INK, lines):
        path = " ".join(at(*point) for point in points)
        out.append(f'<polyline fill="none" stroke="{ink}" stroke-width="2" stroke-linejoin="round" points="{path}"/>')
    return out


def draw(panels, events, seconds):
    width, height = 2 * W + 3 * GAP, 2 * H + 3 * GAP
    queries = "\n".join(f"{title}, {legend}: {query}" for title, _, lines in panels for legend, query, _ in lines)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
        "<title>A router loses one of three engines and gets it back</title>",
        f"<desc>Answers of Prometheus to these queries, one a second, from a run of tests/observability/picture.py with three simulated engines:\n{html.escape(queries)}</desc>",
        "<style>",
        "text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #57606a }",
        ".title { font-size: 15px; font-weight: 600; fill: #24292f } .unit { font-size: 12px; font-weight: 400; fill: #57606a }",
        ".small { font-size: 11px } .what { font-size: 11px; font-style: italic }",
        ".grid { stroke: #8c959f; stroke-opacity: .25 } .event { stroke: #8c959f; stroke-dasharray: 4 3 }",
        "@media (prefers-color-scheme: dark) { text, .unit { fill: #9da7b1 } .title { fill: #e6edf3 } polyline, line { filter: brightness(1.35) } }",
        "</style>",
    ]
    for place, (title, unit, lines) in enumerate(panels):
        x, y = GAP + place % 2 * (W + GAP), GAP + place // 2 * (H + GAP)
        out += panel(x, y, title, unit, lines, events, seconds)
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--png", help="make a PNG of it too, with rsvg-convert, to look at")
    arguments = arguments.parse_args()
    picture = ROOT / "docs" / "traffic.svg"
    picture.write_text(draw(*record()))
    print(picture)
    if arguments.png:
        subprocess.run(["rsvg-convert", "-o", arguments.png, picture], check=True)
