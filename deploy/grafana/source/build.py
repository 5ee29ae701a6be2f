#!/usr/bin/env python3
"""Writes deploy/grafana/dashboards/*.json from the tables beside this file. `--check` writes nothing and fails on a difference."""

import pathlib
import sys

import board
import pipeline
import traffic

OUT = pathlib.Path(__file__).resolve().parent.parent / "dashboards"
BOARDS = [traffic.BOARD, pipeline.BOARD]


def main():
    stale = []
    for each in BOARDS:
        path = OUT / f"{each['uid']}.json"
        made = board.text(each)
        if path.exists() and path.read_text() == made:
            continue
        stale.append(path.name)
        if "--check" not in sys.argv:
            path.write_text(made)
    if stale and "--check" in sys.argv:
        sys.exit(f"not what deploy/grafana/source makes: {', '.join(stale)}; run python3 deploy/grafana/source/build.py")


if __name__ == "__main__":
    main()
