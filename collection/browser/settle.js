// Waits until the page is unchanged for `quiet` ms, and its visible images (of <img> and of styles) and fonts have
// loaded. It starts no requests of its own: the page's resource timing shows when an image of a style has loaded
// or failed. Frames, and elements beyond the limits below, are not checked.
const [first, quiet, limit, done] = arguments;
const POLL = 20, PAINT = 100, VISITED = 5000, SHOWN = 1000;
const IMAGE_STYLES = ['backgroundImage', 'listStyleImage', 'borderImageSource', 'maskImage', 'content'];
const start = performance.now();
const notes = window['rmsweb.preload'];
// Requests that timed out once are not waited for again.
const { finished, timedOut } = notes ? notes.requests : { finished: {}, timedOut: {} };
let timer, early, painted, missing = null, late = false;

const left = () => start + limit - performance.now();
const clear = () => { clearTimeout(timer); clearTimeout(early); };
const finish = () => {
  clear();
  clearTimeout(painted);
  observer.disconnect();
  done(null);
};
// The page may have broken functions that are used here. Then the wait ends at once.
const safely = (step) => () => { try { step(); } catch (error) { finish(); } };

function arm(wait) {
  clear();
  missing = null;
  const rest = Math.max(0, Math.min(wait, left()));
  // The search runs during the wait for changes, so that it costs no extra time.
  early = setTimeout(safely(() => { missing = findMissing(); }), rest / 2);
  timer = setTimeout(safely(check), rest);
}

function check() {
  missing = (missing || findMissing()).filter((one) => !one.loaded());
  if (!missing.length) {
    // Late images have to be painted first. A background tab paints no frames, hence the timeout.
    if (!late) return finish();
    requestAnimationFrame(() => requestAnimationFrame(finish));
    painted = setTimeout(finish, Math.max(0, Math.min(PAINT, left())));
    return;
  }
  late = true;
  if (left() > 0) {
    timer = setTimeout(safely(check), Math.min(POLL, left()));
    return;
  }
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
    for (const root of [el, el.shadowRoot]) {
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
