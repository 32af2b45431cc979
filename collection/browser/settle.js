// Waits until the page is unchanged for `quiet` ms, and its visible images (of <img> and of styles) and fonts have
// loaded. It starts no requests of its own: the page's resource timing shows when an image of a style has loaded
// or failed. Frames, and elements beyond the limits below, are not checked.
// Timers of the page would show in the numbers that it gets for its own, so tasks of the scheduler are used.
const [first, quiet, limit] = arguments;
const POLL = 20, PAINT = 100, VISITED = 5000, SHOWN = 1000;
const IMAGE_STYLES = ['backgroundImage', 'listStyleImage', 'borderImageSource', 'maskImage', 'content'];
const start = performance.now();
// Requests that timed out once are not waited for again.
const { finished, timedOut } = rmsweb.requests;
const { promise, resolve: done } = Promise.withResolvers();
let waits = new AbortController(), missing = null, late = false;

const left = () => start + limit - performance.now();
const after = (delay, step) => {
  scheduler.postTask(() => { try { step(); } catch { finish(); } }, { delay: Math.max(0, delay), signal: waits.signal }).catch(() => {});
};
const finish = () => {
  waits.abort();
  observer.disconnect();
  done();
};

function arm(wait) {
  waits.abort();
  waits = new AbortController();
  missing = null;
  const rest = Math.max(0, Math.min(wait, left()));
  // The search runs during the wait for changes, so that it costs no extra time.
  after(rest / 2, () => { missing = findMissing(); });
  after(rest, check);
}

function check() {
  missing = (missing || findMissing()).filter((one) => !one.loaded());
  if (!missing.length) {
    // Late images have to be painted first. A background tab paints no frames, hence the time limit.
    if (!late) return finish();
    new IntersectionObserver((_, frame) => { frame.disconnect(); after(POLL, finish); }).observe(document.documentElement);
    return after(Math.min(PAINT, left()), finish);
  }
  late = true;
  if (left() > 0) return after(Math.min(POLL, left()), check);
  for (const one of missing) timedOut[one.name] = true;
  finish();
}

// Returns requested but missing resources, each with a function that checks if it has loaded.
function findMissing() {
  const found = new Map();
  const add = (name, loaded) => { if (!timedOut[name] && !found.has(name) && !loaded()) found.set(name, { name, loaded }); };
  const styled = (style) => {
    for (const property of IMAGE_STYLES) {
      const value = style[property];
      // Only one image of a set is loaded.
      if (!value || !value.includes('url(') || value.includes('image-set(')) continue;
      for (const [, url] of value.matchAll(/url\("(https?:[^"#]*)/g)) {
        add(url, () => finished[url] || performance.getEntriesByName(url).length > 0);
      }
    }
  };
  let shown = 0;
  const stack = [document.documentElement];
  for (let visited = 0; stack.length && visited < VISITED && shown < SHOWN; visited++) {
    const el = stack.pop(), box = el.getBoundingClientRect();
    const empty = !box.width || !box.height;
    const out = box.bottom < 0 || box.right < 0 || box.top >= innerHeight || box.left >= innerWidth;
    // An element outside the viewport is skipped with its children, unless its content overflows.
    if (out && !empty && el.scrollHeight <= box.height + 1) continue;
    const style = empty || !out ? getComputedStyle(el) : null;
    if (empty && style.display === 'none') continue;
    if (!out) {
      shown++;
      styled(style);
      // An image may have no size before it is loaded.
      if (el.tagName === 'IMG') add(`img ${el.currentSrc || el.src}`, () => el.complete || !el.isConnected);
    }
    // An element without a box, such as a cleared float's parent, may still have pseudo-elements with one.
    for (const part of ['::before', '::after', '::marker']) {
      if (out && !empty) break;
      if (part === '::marker' && style.display !== 'list-item') continue;
      const own = getComputedStyle(el, part);
      if (own.content !== 'none' && own.content !== 'normal') styled(own);
    }
    for (const root of [el, rmsweb.rootOf(el)]) {
      for (let child = root && root.lastElementChild; child; child = child.previousElementSibling) stack.push(child);
    }
  }
  add('fonts', () => document.fonts.status === 'loaded');
  return [...found.values()];
}

// While waiting for suggestions, only new elements count; an attribute that changes with the last key does not.
const observer = new MutationObserver((records) => {
  if (first <= quiet || records.some((record) => record.addedNodes.length)) arm(quiet);
});
observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
arm(first);
return promise;
