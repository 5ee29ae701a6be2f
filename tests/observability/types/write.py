"""Writes the boards as TypeScript literals of Grafana's own types: a misspelt key or a wrong value does not compile."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import sources

# JSON has the values of enums, TypeScript wants their names. What the Prometheus data source adds to an annotation is its own.
HEAD = """import type { AnnotationQuery, Dashboard } from '@grafana/schema';
type Plain<T> = T extends string ? T | `${T}` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
type Note = Plain<AnnotationQuery> & { expr: string; step: string; titleFormat: string; useValueForTime: boolean };
type Board = Plain<Omit<Dashboard, 'annotations'>> & { annotations: { list: Note[] } };
"""

KINDS = {"stat": "Stat", "timeseries": "TimeSeries", "state-timeline": "StateTimeline", "heatmap": "Heatmap", "table": "Table"}


def literal(name, kind, value):
    return f"export const {name}: {kind} = {json.dumps(value)};\n"


def text():
    parts = [HEAD]
    for kind in KINDS.values():
        where = f"@grafana/schema/dist/esm/raw/composable/{kind.lower()}/panelcfg/x/{kind}PanelCfg_types.gen"
        parts.append(f"import type {{ Options as {kind}Options }} from '{where}';\n")
    for number, board in enumerate(sources.boards()):
        parts.append(literal(f"board{number}", "Board", board))
        for panel in sources.panels(board):
            parts.append(literal(f"options{number}_{panel['id']}", f"Plain<{KINDS[panel['type']]}Options>", panel["options"]))
    return "".join(parts)


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text(text())
