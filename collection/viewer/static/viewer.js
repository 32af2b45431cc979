"use strict";
// The scrubber of an episode, labels by key, and pages that follow a run. Every page works without it.

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
  let at = 0;
  const show = (number) => {
    at = Math.min(steps.length, Math.max(1, number));
    steps.forEach((step, place) => step.classList.toggle("shown", place === at - 1));
    range.value = at;
    text.textContent = `${at} / ${steps.length}`;
  };
  const move = (number) => {
    show(number);
    history.replaceState(null, "", `#step-${at}`);
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
  const asked = /^#step-(\d+)$/.exec(location.hash);
  show(asked ? Number(asked[1]) : 1);
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

// A run that goes on: its page is loaded again, without losing what is open or selected.
function follow() {
  setInterval(async () => {
    if (document.hidden || document.querySelector("details[open], main :focus")) return;
    try {
      const answer = await fetch(location.href);
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.querySelector("main").replaceWith(page.querySelector("main"));
      if (!page.body.hasAttribute("data-live")) document.body.removeAttribute("data-live");
    } catch {
      // The server was stopped; the page stays as it is.
    }
  }, 2000);
}

document.querySelectorAll(".scrubber").forEach(scrubber);
document.querySelectorAll(".shot[data-boxes]").forEach(marks);
document.querySelectorAll(".labels").forEach(labels);
if (document.body.hasAttribute("data-live")) follow();
