// Finds visible secrets in a frame and in those of its own origin.
// arguments[0]: {texts: also return the visible texts}.
// Returns {boxes, texts, frames}: boxes are [left, top, right, bottom] in the window; a text is
// [text, left, top, right, bottom], in document order; frames of other origins are [element, left, top].
const options = arguments[0];
const KEY = Symbol.for('passwords');
const boxes = [], texts = [], frames = [];
const CARD = /(?<!\d)(?:\d[ -]?){13,18}\d(?!\d)/g;

// As in redaction.py: lengths and first digits that issuers use, and a valid check digit.
function isCard(text) {
  const digits = text.replace(/\D/g, '');
  if (!/^(?:4\d{15}(?:\d{3})?|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3[0689]\d{12}|35\d{14}|6\d{15,18})$/.test(digits)) return false;
  let sum = 0;
  for (let i = 0; i < digits.length; i++) {
    let digit = Number(digits[digits.length - 1 - i]);
    if (i % 2 && (digit *= 2) > 9) digit -= 9;
    sum += digit;
  }
  return sum % 10 === 0;
}

// A password field stays secret when the page switches it to plain text.
function wasPassword(view, el) {
  let known = view[KEY];
  if (!known) Object.defineProperty(view, KEY, { value: known = new WeakSet() });
  if (el.type === 'password') known.add(el);
  return known.has(el);
}

function scan(view, dx, dy) {
  const add = (list, rect, ...before) => {
    if (rect.right <= rect.left || rect.bottom <= rect.top) return;
    if (rect.right < 0 || rect.bottom < 0 || rect.left > view.innerWidth || rect.top > view.innerHeight) return;
    list.push([...before, Math.floor(rect.left + dx), Math.floor(rect.top + dy), Math.ceil(rect.right + dx), Math.ceil(rect.bottom + dy)]);
  };
  const field = (el) => {
    const names = (el.getAttribute('autocomplete') || '').toLowerCase().split(/\s+/);
    const value = el.tagName === 'SELECT' ? '' : el.value || '';
    const rect = el.getBoundingClientRect();
    if (wasPassword(view, el) || names.some((name) => name.startsWith('cc-')) || isCard(value)) add(boxes, rect);
    else if (options.texts && value && !['checkbox', 'radio', 'hidden', 'file'].includes(el.type)) add(texts, rect, `\n${value}\n`);
  };
  const frame = (el) => {
    const rect = el.getBoundingClientRect();
    const x = rect.left + el.clientLeft, y = rect.top + el.clientTop;
    let inner = null;
    try { inner = el.contentDocument && el.contentWindow; } catch { /* Another origin. */ }
    if (inner) scan(inner, dx + x, dy + y);
    else frames.push([el, dx + x, dy + y]);
  };
  // The box of an element is cheap and far-away text need not be measured. Without a box its texts are measured.
  const isFarAway = (el) => {
    if (!el) return false;
    const rect = el.getBoundingClientRect();
    return rect.width > 0 && rect.height > 0 && (rect.bottom < -view.innerHeight || rect.top > 2 * view.innerHeight);
  };
  const range = view.document.createRange();
  const text = (node) => {
    const data = node.data;
    for (const found of data.matchAll(CARD)) {
      if (!isCard(found[0])) continue;
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      for (const rect of range.getClientRects()) add(boxes, rect);
    }
    if (!options.texts || isFarAway(node.parentElement)) return;
    range.selectNodeContents(node);
    add(texts, range.getBoundingClientRect(), data.replace(/\s+/g, ' '));  // As the browser shows it.
  };
  const walk = (root) => {
    const walker = view.document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (node.nodeType === Node.TEXT_NODE) { text(node); continue; }
      const tag = node.tagName;
      if (tag === 'INPUT' || tag === 'TEXTAREA' || tag === 'SELECT') field(node);
      else if (tag === 'IFRAME' || tag === 'FRAME') frame(node);
      const shadow = rmsweb.rootOf(node);
      if (shadow) walk(shadow);
    }
  };
  walk(view.document);
}

scan(window, 0, 0);
return { boxes, texts, frames };
