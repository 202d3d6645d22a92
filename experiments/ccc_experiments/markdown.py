# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Results of figures as tables for documents."""

from collections.abc import Iterable

from .interval import Interval


def results(figures: Iterable[dict]) -> str:
    """A section for each figure: what was measured, and what had to hold."""
    return "\n".join(_section(figure) for figure in figures)


def _section(figure: dict) -> str:
    seeds = len(figure["seeds"])
    runs = "1 run" if seeds == 1 else f"{seeds} runs"
    lines = [
        f"### {figure['figure']}",
        "",
        f"{figure['title'].capitalize()} ({figure['papers']}). `{figure['command']}`, {runs} each.",
        "",
        *_table(figure["values"]),
        "",
        *(_score(score) for score in figure["scores"]),
        "",
    ]
    return "\n".join(lines)


def _table(values: list[dict]) -> list[str]:
    measures = [name for name in values[0] if name not in ("case", "kind")]
    head = ["case", "kind", *measures]
    rows = [[row["case"], row["kind"], *(_value(row[name]) for name in measures)] for row in values]
    return [_row(head), "|" + "---|" * len(head), *map(_row, rows)]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _value(value: dict) -> str:
    return str(Interval(value["mean"], value.get("ci95")))


def _score(score: dict) -> str:
    value = Interval(score["value"], score.get("ci95"))
    unit = "" if score["unit"] in ("1", "ratio") else f" {score['unit']}"
    return f"- {score['name']}: {value}{unit} (bound {score['bound']}){_held(score)}"


def _held(score: dict) -> str:
    said = " guard" if score.get("guard") else ""
    if "known" in score:
        mark = "holds now, known not to" if score["holds"] else "known"
        said += f" **{mark}**, floor {score['floor']:g}: {score['known']}"
    return said + (" **fails**" if score["fails"] else "")
