// Waits until the page has been unchanged for `quiet` ms, and what it shows is there: pictures of <img> and
// of styles in the viewport, and fonts. Nothing is asked for that the page has not asked for itself: of a
// picture of a style only its entry in the page's own resource timing tells that it has come, or has failed.
// Neither frames nor what lies behind the limits below is looked at.
const [first, quiet, limit, done] = arguments;
const POLL = 20, PAINT = 100, VISITED = 5000, SHOWN = 1000;
const PICTURES = ['backgroundImage', 'listStyleImage', 'borderImageSource', 'maskImage', 'content'];
const start = performance.now();
const notes = window['rmsweb.preload'];
// What has come, and what was waited for to no end: once is enough.
const { arrived, vain } = notes ? notes.pictures : { arrived: {}, vain: {} };
let timer, early, painted, missing = null, late = false;

const left = () => start + limit - performance.now();
const clear = () => { clearTimeout(timer); clearTimeout(early); };
const finish = () => {
  clear();
  clearTimeout(painted);
  observer.disconnect();
  done(null);
};
// A page may have broken what is used here. Then it is looked at as it is.
const safely = (step) => () => { try { step(); } catch (error) { finish(); } };

function arm(wait) {
  clear();
  missing = null;
  const rest = Math.max(0, Math.min(wait, left()));
  // Looked for while the page is waited for anyway.
  early = setTimeout(safely(() => { missing = look(); }), rest / 2);
  timer = setTimeout(safely(check), rest);
}

function check() {
  missing = (missing || look()).filter((one) => !one.there());
  if (!missing.length) {
    // What has come late has to be painted; in a tab behind others no frame is made.
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
  for (const one of missing) vain[one.name] = true;
  finish();
}

// What is asked for and not there yet: a name, and how to tell that it has come.
function look() {
  const found = new Map();
  const add = (name, there) => { if (!vain[name] && !found.has(name) && !there()) found.set(name, { name, there }); };
  const styled = (style) => {
    for (const property of PICTURES) {
      const value = style[property];
      // Of a set only one is loaded.
      if (!value || !value.includes('url(') || value.includes('image-set(')) continue;
      for (const [, url] of value.matchAll(/url\("(https?:[^"#]*)/g)) {
        add(url, () => arrived[url] || performance.getEntriesByName(url).length > 0);
      }
    }
  };
  let shown = 0;
  const stack = [document.documentElement];
  for (let visited = 0; stack.length && visited < VISITED && shown < SHOWN; visited++) {
    const el = stack.pop(), box = el.getBoundingClientRect();
    const empty = !box.width || !box.height;
    const out = box.bottom < 0 || box.right < 0 || box.top >= innerHeight || box.left >= innerWidth;
    // What stands outside holds nothing inside, unless it holds more than has room in it.
    if (out && !empty && el.scrollHeight <= box.height + 1) continue;
    const style = empty || !out ? getComputedStyle(el) : null;
    if (empty && style.display === 'none') continue;
    if (!out) {
      shown++;
      styled(style);
      // Before it has come it may be of no size.
      if (el.tagName === 'IMG') add(`img ${el.currentSrc || el.src}`, () => el.complete || !el.isConnected);
    }
    // One without a box of its own, such as a cleared float's parent, may still have one before it.
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

// What is waited for is something new: an attribute that follows the last key is not it.
const observer = new MutationObserver((records) => {
  if (first <= quiet || records.some((record) => record.addedNodes.length)) arm(quiet);
});
observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
arm(first);
