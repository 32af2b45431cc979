"use strict";
// The scrubber of an episode, labels by key, plots, and pages that follow a run. Every page works without it.

function scrubber(box) {
  const steps = [...box.querySelectorAll(":scope > section")];
  if (steps.length < 2) return;
  const bar = document.createElement("div");
  bar.className = "controls";
  const range = document.createElement("input");
  Object.assign(range, { type: "range", min: 1, max: steps.length });
  range.setAttribute("aria-label", "step");
  const text = document.createElement("output");
  const back = document.createElement("button");
  const on = document.createElement("button");
  back.textContent = "←";
  on.textContent = "→";
  back.setAttribute("aria-label", "step before");
  on.setAttribute("aria-label", "next step");
  bar.append(back, range, on, text);
  box.before(bar);
  box.classList.add("scrubbed");
  const film = [...document.querySelectorAll(".film a")];
  let at = 0;
  const show = (number) => {
    at = Math.min(steps.length, Math.max(1, number));
    steps.forEach((step, place) => step.classList.toggle("shown", place === at - 1));
    film.forEach((one, place) => {
      if (place === at - 1) one.setAttribute("aria-current", "step");
      else one.removeAttribute("aria-current");
    });
    const strip = film[at - 1]?.closest(".film");
    if (strip) strip.scrollLeft = film[at - 1].offsetLeft - strip.offsetLeft - strip.clientWidth / 2 + 74;
    range.value = at;
    text.textContent = `${at} / ${steps.length}`;
  };
  const move = (number) => {
    show(number);
    history.replaceState(null, "", `#${steps[at - 1].id}`);
  };
  range.addEventListener("input", () => move(Number(range.value)));
  back.addEventListener("click", () => move(at - 1));
  on.addEventListener("click", () => move(at + 1));
  document.addEventListener("keydown", (event) => {
    if (typing(event)) return;
    const moves = { ArrowRight: 1, j: 1, ArrowLeft: -1, k: -1, Home: -steps.length, End: steps.length };
    if (event.target !== range && event.key in moves) {
      event.preventDefault();
      move(at + moves[event.key]);
    }
  });
  const asked = () => {
    const place = steps.findIndex((step) => `#${step.id}` === location.hash);
    show(place + 1 || at || 1);
    if (place >= 0) steps[place].scrollIntoView({ block: "nearest" });
  };
  window.addEventListener("hashchange", asked);
  asked();
}

// Marks the elements of a screenshot that were acted on.
function marks(shot) {
  const image = shot.querySelector("img");
  const draw = () => {
    for (const box of shot.dataset.boxes.split(" ")) {
      const [left, top, right, bottom] = box.split(",").map(Number);
      const mark = document.createElement("div");
      mark.className = "mark";
      const share = (pixels, all) => `${(100 * pixels) / all}%`;
      Object.assign(mark.style, {
        left: share(left, image.naturalWidth),
        top: share(top, image.naturalHeight),
        width: share(right - left, image.naturalWidth),
        height: share(bottom - top, image.naturalHeight),
      });
      shot.append(mark);
    }
  };
  if (image.complete && image.naturalWidth) draw();
  else image.addEventListener("load", draw);
}

function typing(event) {
  const field = event.target instanceof HTMLElement && event.target.closest("input, select, textarea");
  return event.ctrlKey || event.metaKey || event.altKey || (field && field.type !== "range");
}

function labels(box) {
  const buttons = [...box.querySelectorAll("button")];
  const save = async (button) => {
    const taken = button.getAttribute("aria-pressed") === "true";
    const body = new URLSearchParams({ ...box.dataset, label: taken ? "" : button.dataset.label });
    const answer = await fetch("/label", { method: "POST", body });
    if (!answer.ok) return box.append(` ${await answer.text()}`);
    const label = await answer.text();
    for (const one of buttons) one.setAttribute("aria-pressed", String(one.dataset.label === label));
  };
  for (const button of buttons) button.addEventListener("click", () => save(button));
  document.addEventListener("keydown", (event) => {
    const button = typing(event) ? null : buttons.find((one) => one.dataset.key === event.key);
    if (button) save(button);
  });
}

// A plot by uPlot, which shows the values under the pointer in its legend; `figure.plot` is the plot.
function plot(figure) {
  const box = figure.querySelector(".canvas");
  const data = JSON.parse(figure.dataset.plot);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const short = (value) => (value == null ? "" : String(Number(value.toPrecision(4))).replace("-", "−"));
  const named = (at) => (data.names ? (data.names[at] ?? "") : short(at));
  const range = (_, min, max) => {
    if (data.limits) return data.limits;
    if (min == null) return [0, 1];
    const pad = (max - min) * 0.08 || Math.abs(max) * 0.1 || 1;
    // What cannot be below zero, such as a share, has no axis there.
    return [min >= 0 ? Math.max(0, min - pad) : min - pad, max + pad];
  };
  const bars = (u) => {
    for (const [line, ends] of (data.bars ?? []).entries()) {
      u.ctx.strokeStyle = color(`series-${line % 8}`);
      u.ctx.lineWidth = 2 * devicePixelRatio;
      for (const [at, end] of ends.entries()) {
        const [x, low, high] = [u.valToPos(data.x[at], "x", true), ...end.map((y) => u.valToPos(y, "y", true))];
        u.ctx.beginPath();
        u.ctx.moveTo(x, low);
        u.ctx.lineTo(x, high);
        u.ctx.stroke();
      }
    }
  };
  const series = data.lines.map((line, number) => ({
    label: line.label,
    stroke: color(`series-${(data.colors?.[number] ?? number) % 8}`),
    width: 1.7,
    dash: [[], [7, 4], [2, 3], [10, 3, 2, 3]][(data.dashes?.[number] ?? 0) % 4],
    spanGaps: true,
    points: { show: data.x.length <= 25, size: 6 },
    value: (u, value, _, at) => {
      const end = at == null ? null : data.bars?.[number]?.[at];
      return end ? `${short(value)} (${short(end[0])} to ${short(end[1])})` : short(value) || "–";
    },
  }));
  const axis = { stroke: color("muted"), grid: { stroke: color("rule"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const whole = (_, splits) => splits.map((at) => (Number.isInteger(at) ? named(at) : ""));
  const options = {
    width: box.clientWidth,
    height: 220,
    scales: { x: { time: false, range: data.x.length > 1 && !data.names ? undefined : (_, min, max) => [min - 0.5, max + 0.5] }, y: { range } },
    series: [{ label: data.axis ?? (data.names ? "evaluation" : "step"), value: (_, at) => (at == null ? "–" : named(at)) }, ...series],
    axes: [
      { ...axis, size: 30, values: whole, ...(data.names ? { splits: () => data.x } : {}) },
      { ...axis, size: 58, values: (_, splits) => splits.map(short) },
    ],
    cursor: { points: { size: 8 } },
    hooks: { draw: [bars] },
  };
  figure.plot?.destroy();
  figure.plot = new uPlot(options, [data.x, ...data.lines.map((line) => line.y)], box);
}

const sizes = new ResizeObserver((boxes) => {
  for (const { target } of boxes) target.parentElement.plot.setSize({ width: target.clientWidth, height: 220 });
});

function plots() {
  for (const figure of document.querySelectorAll(".plot")) {
    plot(figure);
    sizes.observe(figure.querySelector(".canvas"));
  }
}

// A run that goes on: its page is loaded again, without losing what is open or selected.
function follow() {
  setInterval(async () => {
    if (document.hidden || document.querySelector("details[open], main :focus")) return;
    try {
      const answer = await fetch(location.href);
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.querySelector("main").replaceWith(page.querySelector("main"));
      if (window.uPlot) plots();
      if (!page.body.hasAttribute("data-live")) document.body.removeAttribute("data-live");
    } catch {
      // The server was stopped; the page stays as it is.
    }
  }, 2000);
}

document.querySelectorAll(".scrubber").forEach(scrubber);
document.querySelectorAll(".shot[data-boxes]").forEach(marks);
document.querySelectorAll(".labels").forEach(labels);
if (window.uPlot) {
  plots();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", plots);
}
if (document.body.hasAttribute("data-live")) follow();
