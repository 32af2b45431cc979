"""Plots are files that look the same each time, drawn from the data next to them."""

import dataclasses

import numpy as np
import pandas
import pytest

from collection.report.evaluations import Evaluation
from collection.report.plots import CURVES, METRICS, checkpoints_plot, cost_plots, curve_plots, dynamics_plot
from tests.report.evaluated import make_results


def rows(offset: float, steps: int = 5) -> list[dict]:
    return [{"step": step, **dict.fromkeys(METRICS, offset + 0.01 * step)} for step in range(1, steps + 1)]


def evaluation(label: str, chance: float, **fields) -> Evaluation:
    results = make_results(label, "miniwob", chance, **fields)
    return Evaluation(label, "miniwob", results, {}, 0)


def test_files_are_the_same_each_time_and_the_csv_has_what_is_drawn(tmp_path):
    for name in ("one", "two"):
        for plot in dynamics_plot([rows(0.1), rows(0.2)]):
            plot.write(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["dynamics.csv", "dynamics.pdf", "dynamics.png"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    assert (tmp_path / "one/dynamics.pdf").read_bytes().startswith(b"%PDF")
    data = pandas.read_csv(tmp_path / "one/dynamics.csv")
    assert (len(data), len(set(data["panel"]))) == (5 * len(METRICS), 6)
    kl = data[data["series"] == "kl_ref"]
    assert kl["y"].tolist() == pytest.approx([0.16, 0.17, 0.18, 0.19, 0.2])
    assert kl["low"].tolist() == pytest.approx([0.11, 0.12, 0.13, 0.14, 0.15])


def test_nothing_is_drawn_of_nothing():
    assert dynamics_plot([]) == dynamics_plot([[{"step": 1, "kl_ref": None}]]) == []
    assert curve_plots([{"step": 1}], "sft") == [] and cost_plots([]) == []
    assert checkpoints_plot([evaluation("a", 0.5)]) == []


def test_metrics_that_were_not_logged_leave_the_others():
    (plot,) = dynamics_plot([[{"step": 1, "gates/competence_rejected": 0.1}]])
    assert plot.data["series"].tolist() == ["competence gate"] and "low" not in plot.data
    assert [axes.get_visible() for axes in plot.figure.axes] == [True] + [False] * 5
    # A share is never below 0.
    assert plot.figure.axes[0].get_ylim()[0] == 0
    (plot,) = curve_plots([{"step": n, "loss/train": 1 / n, "lr": None} for n in range(1, 101)], "sft")
    assert plot.name == "sft-loss" and len(plot.data) == 100
    # A long curve is smoothed over its raw values.
    raw, smooth = plot.figure.axes[0].lines
    assert [np.size(line.get_xdata()) for line in (raw, smooth)] == [100, 96]
    assert len({title.lower().replace(" ", "-") for title in CURVES}) == len(CURVES)


def test_pass_at_1_is_drawn_over_the_number_of_a_checkpoint_with_its_interval():
    found = [evaluation(f"step-{number}", chance) for number, chance in ((300, 0.7), (20, 0.3), (100, 0.5))]
    (plot,) = checkpoints_plot(found)
    assert plot.data["x"].tolist() == [20, 100, 300]
    rate = found[1].score["pass_at_1"]
    assert plot.data.iloc[0][["y", "low", "high"]].tolist() == pytest.approx(
        [100 * rate[key] for key in ("mean", "low", "high")]
    )
    (plot,) = checkpoints_plot([evaluation("sft", 0.3), evaluation("rl", 0.5)])
    assert plot.data["policy"].tolist() == ["sft", "rl"] and plot.data["x"].tolist() == [0, 1]
    assert [text.get_text() for text in plot.figure.axes[0].get_xticklabels()] == ["sft", "rl"]


def test_costs_far_apart_are_on_a_logarithmic_axis():
    cheap, near, far = (evaluation(f"at-{cost}", 0.5, cost=cost) for cost in (0.01, 0.02, 0.5))
    assert [cost_plots([cheap, one])[0].figure.axes[0].get_xscale() for one in (near, far)] == [
        "linear",
        "log",
    ]


def test_policies_that_cost_nothing_have_no_place_on_its_axis():
    free = evaluation("free", 0.5, cost=0.0)
    table = free.results.table.assign(prompt_tokens=0, response_tokens=0)
    scripted = dataclasses.replace(free, results=dataclasses.replace(free.results, table=table))
    assert cost_plots([scripted]) == []
    (plot,) = cost_plots([scripted, free])
    assert plot.data["x"].tolist() == [20_500, 41_000, 61_500]


def test_evaluations_without_a_result_are_left_out():
    nothing = evaluation("none", 0.5)
    lost = nothing.results.table.assign(fate="crashed")
    empty = dataclasses.replace(nothing, results=dataclasses.replace(nothing.results, table=lost))
    (plot,) = cost_plots([evaluation("some", 0.5), empty])
    assert set(plot.data["series"]) == {"some"} and np.isfinite(plot.data["y"]).all()
