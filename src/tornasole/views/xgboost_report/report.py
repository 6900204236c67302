"""The report from top to bottom: its header and its sections in order."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from tornasole.views.charts import escape
from tornasole.views.xgboost_report.page import Section, document
from tornasole.views.xgboost_report.prediction_sections import prediction_sections
from tornasole.views.xgboost_report.reading import About, Saved
from tornasole.views.xgboost_report.sections import (
    hyperparameters_section,
    importance_section,
    metrics_section,
    shap_section,
    trees_section,
)


def report(saved: Saved) -> str:
    """The page about what was saved."""
    hyperparameters = saved.hyperparameters()
    sections = [
        metrics_section(saved.metrics()),
        *prediction_sections(saved, hyperparameters),
        importance_section(saved.importance()),
        shap_section(saved.shap()),
        trees_section(saved.trees(), hyperparameters),
        hyperparameters_section(hyperparameters),
    ]
    about = saved.about()
    return document(f"XGBoost report: {about.name}", _header(about, sections), sections)


def _header(about: About, sections: list[Section]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(about.versions.items()))
    facts = {
        "Trial": escape(about.path),
        "State": f'<span class="state {escape(about.state)}"></span>{escape(_state(about))}',
        "Rounds": escape(_rounds(about.steps)),
        "Started": escape(_when(about.created)),
        "Versions": escape(versions),
    }
    missing = ", ".join(section.missing for section in sections if section.missing)
    if missing:
        facts["Not saved"] = escape(missing)
    lines = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items() if value)
    told = [sentence for section in sections for sentence in section.highlights]
    short = "".join(f"<li>{escape(sentence)}</li>" for sentence in told)
    return (
        f'<p class="kicker">XGBoost report</p><h1>{escape(about.name or about.path)}</h1>'
        f'<dl class="about">{lines}</dl>' + (f'<ul class="short">{short}</ul>' if short else "")
    )


def _state(about: About) -> str:
    if about.state == "running":
        return "running: this is what had been saved when the page was made"
    if about.reason and about.state != "finished":
        return f"{about.state}: {about.reason}"
    return about.state


def _rounds(steps: list[int]) -> str:
    if not steps:
        return "none were saved yet"
    if len(steps) == 1:
        return f"1 saved, round {steps[0]}"
    distances = np.unique(np.diff(steps))
    every = f", every {distances[0]}" if len(distances) == 1 and distances[0] > 1 else ""
    return f"{len(steps):,} saved, from {steps[0]:,} to {steps[-1]:,}{every}"


def _when(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created.replace("Z", "+00:00"))
    except ValueError:
        return created
    zone = moment.strftime("%Z")
    return f"{moment:%Y-%m-%d %H:%M} {zone}".strip()
