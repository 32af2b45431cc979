import re
import xml.etree.ElementTree as ElementTree

from collection.report.dynamics import METRICS, dynamics_plot
from collection.report.plots import standalone


def rows(offset: float, steps: int = 5) -> list[dict]:
    return [{"step": step, **dict.fromkeys(METRICS, offset + 0.01 * step)} for step in range(1, steps + 1)]


def test_all_three_panels_are_drawn_and_named():
    svg = dynamics_plot([rows(0.1)], "d", "Dynamics")
    for text in ("(a) Rejected", "(b) Log-probability", "(c) Drift", "KL to reference", "ppo_kl", "gap"):
        assert text in svg
    assert not re.search(r"(?:fill|stroke): #", svg)


def test_nothing_is_drawn_of_nothing():
    assert dynamics_plot([], "d", "t") == ""
    assert dynamics_plot([[{"step": 1, "kl_ref": None}]], "d", "t") == ""


def test_missing_metrics_leave_the_others():
    row = {"step": 1, "gates/competence_rejected": 0.1}
    assert "competence gate" in dynamics_plot([[row]], "d", "t")


def test_several_trainings_get_a_band():
    assert "fill-opacity: 0.18" in dynamics_plot([rows(0.1), rows(0.2)], "d", "t")
    assert "fill-opacity: 0.18" not in dynamics_plot([rows(0.1)], "d", "t")


def test_a_plot_of_its_own_is_a_valid_file_that_looks_the_same_each_time():
    text, again = (standalone(dynamics_plot([rows(0.1), rows(0.2)], "d", "t")) for _ in range(2))
    assert text == again
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    defined = set(re.findall(r"--([a-z0-9-]+):", text))
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", text)) <= defined
