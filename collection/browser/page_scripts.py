"""Scripts that actions run in the isolated world of a page; `rmsweb` is defined in world.js."""

import pathlib

# Returns the element of a number in a document, or in any if none is given; null if it is gone. Another
# document begins its numbers again.
FIND = """
const [uid, document] = arguments;
const el = document && document !== performance.timeOrigin ? null : rmsweb.elements.get(uid);
return el && el.isConnected ? el : null;
"""

# Scrolls the element into view. Returns the first of its centre and inset corners at which a click would hit
# the element itself, in the window of its frame; null if there is none.
CLICK_POINT = """
const el = arguments[0];
const isArea = el.tagName === 'AREA';
const images = () => document.querySelectorAll(`img[usemap="#${CSS.escape(el.closest('map').name)}"]`);
const base = isArea ? Array.from(images()).find((one) => one.checkVisibility()) : el;
if (!base) return null;
const inView = (r) => r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight;
function scroll() {
  base.scrollIntoView({ block: 'center', inline: 'nearest', behavior: 'instant' });
  if (!isArea) return;
  // The image may be larger than the window.
  const [x, y] = pointsOfArea(base.getBoundingClientRect())[0];
  scrollBy({ left: x - innerWidth / 2, top: y - innerHeight / 2, behavior: 'instant' });
}
// A frame does not know if it is in view itself.
if (window !== top || !inView(base.getBoundingClientRect())) scroll();
function at(x, y) {
  let hit = Document.prototype.elementFromPoint.call(document, x, y);
  while (hit) {
    const root = rmsweb.rootOf(hit);
    const inner = root && root.elementFromPoint(x, y);
    if (!inner || inner === hit) break;
    hit = inner;
  }
  return hit;
}
function within(node) {
  for (; node; node = node.assignedSlot || node.parentNode || node.host) {
    if (node === el || (node.tagName === 'LABEL' && node.control === el)) return true;
  }
  return false;
}
// Points of an area, from the numbers of its shape.
function pointsOfArea(r) {
  const [left, top, scale] = rmsweb.placeOf(base);
  const numbers = (el.coords.match(/-?[\\d.]+/g) || []).map((one) => scale * one);
  if (numbers.length < 3) return pointsOf(r, r.left, r.top, r.right, r.bottom);
  if (numbers.length === 3) return [[left + numbers[0], top + numbers[1]]];
  const corners = [];
  for (let i = 0; i + 1 < numbers.length; i += 2) corners.push([left + numbers[i], top + numbers[i + 1]]);
  const middle = (some) => [0, 1].map((axis) => some.reduce((sum, one) => sum + one[axis], 0) / some.length);
  return [middle(corners), ...corners.map((_, i) => middle(corners.slice(i, i + 3)))];
}
function pointsOf(r, left, top, right, bottom) {
  const dx = Math.min(4, (right - left) / 4), dy = Math.min(4, (bottom - top) / 4);
  return [[(left + right) / 2, (top + bottom) / 2], [left + dx, top + dy], [right - dx, top + dy],
    [left + dx, bottom - dy], [right - dx, bottom - dy]];
}
function find() {
  for (const r of base.getClientRects()) {
    const left = Math.max(r.left, 0), top = Math.max(r.top, 0);
    const right = Math.min(r.right, innerWidth), bottom = Math.min(r.bottom, innerHeight);
    if (right <= left || bottom <= top) continue;
    for (const [x, y] of isArea ? pointsOfArea(r) : pointsOf(r, left, top, right, bottom)) {
      if (within(at(x, y))) return [x, y];
    }
  }
  return null;
}
const found = find();
if (found) return found;
// It may be outside the visible part of a list that scrolls.
scroll();
return find();
"""

# Returns the field that text for the element is meant for: itself, or the only one in it, which it shows.
FIELD = """
const el = arguments[0];
if (/^(INPUT|TEXTAREA|SELECT|BUTTON|OPTION|LABEL)$/.test(el.tagName) || el.isContentEditable) return el;
const fields = el.querySelectorAll('input[type=range], [role=slider]');
return fields.length === 1 && !el.matches('[role=slider]') ? fields[0] : el;
"""

# 'type': the element takes keys; 'set': only its value can be set; 'none': no text; 'slider': a number by
# keys or mouse; 'focus': a click on it may give the focus to what takes the keys.
TYPING_KIND = """
const el = arguments[0];
if (el.readOnly || el.disabled) return 'none';
if (el.tagName === 'INPUT') {
  if (['date', 'time', 'month', 'week', 'datetime-local', 'color', 'range'].includes(el.type)) return 'set';
  return /^(checkbox|radio|button|submit|reset|image|file|hidden)$/.test(el.type) ? 'none' : 'type';
}
if (/^(SELECT|OPTION|LABEL)$/.test(el.tagName)) return 'none';
if (el.tagName === 'INPUT' || el.tagName === 'TEXTAREA' || el.isContentEditable) return 'type';
return el.getAttribute('role') === 'slider' ? 'slider' : 'focus';
"""

# Returns value, minimum and maximum of a slider; null for what is not known. Then two points: the middle of
# its thumb, and `share` of its track, the nearest element around it that is much longer.
SLIDER = """
const [el, share] = arguments;
const number = (name) => (el.hasAttribute(name) ? Number(el.getAttribute(name)) : null);
const box = el.getBoundingClientRect();
let track = el;
const length = (r) => Math.max(r.width, r.height);
const isTrack = (one) => length(one.getBoundingClientRect()) >= 3 * length(box);
while (!isTrack(track) && track.parentElement) track = track.parentElement;
const way = track.getBoundingClientRect();
const across = way.width >= way.height;
const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
const end = across ? [way.left + share * way.width, y] : [x, way.bottom - share * way.height];
const numbers = ['aria-valuenow', 'aria-valuemin', 'aria-valuemax'].map(number);
return [...numbers, [x, y], end];
"""

SET_VALUE = """
const [el, text] = arguments;
el.focus();
const setter = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
setter.call(el, text);
el.dispatchEvent(new Event('input', { bubbles: true }));
el.dispatchEvent(new Event('change', { bubbles: true }));
"""

# Selects the old text, so that typed keys replace it and the page sees one change from the old to the new
# text. Returns true if the field may show suggestions shortly after the last key.
PREPARE_TYPING = """
const [el, clear] = arguments;
const root = el.getRootNode();
if (root.activeElement !== el && !el.contains(root.activeElement)) el.focus();
if (el.isContentEditable) {
  const range = document.createRange();
  range.selectNodeContents(el);
  if (!clear) range.collapse(false);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
} else if (clear && el.select) {
  el.select();
} else if (el.setSelectionRange && /text|search|url|tel|password/.test(el.type)) {
  el.setSelectionRange(el.value.length, el.value.length);
}
return el.getAttribute('role') === 'combobox' || el.hasAttribute('aria-autocomplete')
  || el.hasAttribute('list') || /autocomplete|typeahead/i.test(el.getAttribute('class') || '');
"""

# Returns the field that has the focus, also in a shadow root; null if that is none, or is in a frame.
FOCUSED = """
let el = document.activeElement;
while (el && rmsweb.activeIn(el)) el = rmsweb.activeIn(el);
return el && /^(INPUT|TEXTAREA)$/.test(el.tagName) ? el : null;
"""

FOCUSED_IN_SHADOW = """
const root = arguments[0].getRootNode();
return Boolean(root.host && root.activeElement && arguments[0].contains(root.activeElement));
"""

IS_FIELD = "return /^(INPUT|TEXTAREA)$/.test(arguments[0].tagName);"

# Sets or extends the text of a field in one event; returns whether the field has taken it.
SET_TEXT = """
const [el, text, clear] = arguments;
const owner = el.tagName === 'TEXTAREA' ? HTMLTextAreaElement : HTMLInputElement;
const value = clear ? text : el.value + text;
el.focus();
Object.getOwnPropertyDescriptor(owner.prototype, 'value').set.call(el, value);
for (const name of ['input', 'change']) el.dispatchEvent(new Event(name, { bubbles: true }));
el.dispatchEvent(new KeyboardEvent('keyup', { bubbles: true }));
return el.value === value;
"""

# Returns the kind and the text of the field that takes the keys: the element, or one that has the focus. The
# kind is '' if there is none; null says that it cannot be known.
TYPED = """
let el = arguments[0];
const takes = (one) => one && (/^(INPUT|TEXTAREA)$/.test(one.tagName) || one.isContentEditable);
if (!takes(el)) {
  el = document.activeElement;
  while (el && rmsweb.activeIn(el)) el = rmsweb.activeIn(el);
  if (el && /^(IFRAME|FRAME|OBJECT|EMBED)$/.test(el.tagName)) return null;
}
if (!takes(el)) return ['', ''];
return [String(el.type || 'text'), String(el.isContentEditable ? el.innerText : el.value).slice(0, 10000)];
"""

SELECT_FOCUSED = """
let el = document.activeElement;
while (el && rmsweb.activeIn(el)) el = rmsweb.activeIn(el);
if (el && el.select) el.select();
else if (el && el.isContentEditable) getSelection().selectAllChildren(el);
"""

# What scrolls in a page that does not: the part around the middle of the window, else the largest one.
SCROLLER = """
const page = document.scrollingElement || document.documentElement;
const styleOf = (el) => getComputedStyle(el).overflowY;
const locked = [document.documentElement, document.body].some((el) => el && /hidden|clip/.test(styleOf(el)));
if (!locked && page.scrollHeight > innerHeight + 4) return null;
const scrolls = (el) => el.scrollHeight > el.clientHeight + 4 && el.clientHeight >= 10
  && /auto|scroll/.test(styleOf(el)) && el.tagName !== 'TEXTAREA';
let el = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
for (let root; el && (root = rmsweb.rootOf(el));) {
  const inner = root.elementFromPoint(innerWidth / 2, innerHeight / 2);
  if (!inner || inner === el) break;
  el = inner;
}
for (; el; el = el.assignedSlot || el.parentElement || el.getRootNode().host) if (scrolls(el)) return el;
const shown = (r) => Math.max(0, Math.min(r.right, innerWidth) - Math.max(r.left, 0))
  * Math.max(0, Math.min(r.bottom, innerHeight) - Math.max(r.top, 0));
let best = null, most = 0;
for (const one of document.querySelectorAll('*')) {
  const size = scrolls(one) ? shown(one.getBoundingClientRect()) : 0;
  if (size > most) [best, most] = [one, size];
}
return best;
"""

SCROLL_PAGE = """
const page = document.scrollingElement || document.documentElement;
const before = page.scrollTop;
page.scrollBy({ top: arguments[0] * innerHeight, behavior: 'instant' });
return page.scrollTop !== before;
"""

SCROLL_ELEMENT = """
let [el, amount] = arguments;
if (el.tagName === 'IFRAME') {
  const page = el.contentDocument && el.contentDocument.scrollingElement;
  if (!page) return false;
  const before = page.scrollTop;
  page.scrollBy({ top: amount * el.clientHeight, behavior: 'instant' });
  return page.scrollTop !== before;
}
while (el && el.scrollHeight <= el.clientHeight) el = el.parentElement;
if (!el) return false;
const before = el.scrollTop;
el.scrollBy({ top: amount * el.clientHeight, behavior: 'instant' });
return el.scrollTop !== before;
"""

# The nodes that are shown in an element: of its shadow root, or those assigned to a slot.
_CONTENT = """
function content(el) {
  if (el.tagName === 'SLOT' && el.assignedNodes().length) return el.assignedNodes();
  return Array.from((rmsweb.rootOf(el) || el).childNodes);
}
const isFrame = (el) => /^I?FRAME$/i.test(el.tagName);
"""

# Returns whether the text was found, and otherwise the frames in which it may be.
SCROLL_TO_TEXT = (
    _CONTENT
    + """
const wanted = arguments[0].toLowerCase().replace(/\\s+/g, ' ').trim();
const stack = [document.body], frames = [];
while (stack.length) {
  const node = stack.pop();
  if (node.nodeType === 1) {
    if (isFrame(node)) { if (node.checkVisibility({ visibilityProperty: true })) frames.push(node); }
    else for (const inner of content(node).reverse()) stack.push(inner);
    continue;
  }
  if (node.nodeType !== 3 || !node.data.toLowerCase().replace(/\\s+/g, ' ').includes(wanted)) continue;
  const el = node.parentElement || node.getRootNode().host;
  if (!el.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
  el.scrollIntoView({ block: 'center', behavior: 'instant' });
  return [true, []];
}
return [false, frames];
"""
)

_LIST = _CONTENT + pathlib.Path(__file__).with_name("options.js").read_text(encoding="utf-8")
# Returns [text, value] of every enabled option.
OPTIONS = (
    _LIST
    + """
return optionsOf(arguments[0], arguments[1]).map((option) => [nameOf(option), valueOf(option)]);
"""
)

# Returns 'open', 'closed', or '' if the element opens no list; then, if a text can be typed to search in it.
OPENS = (
    _LIST
    + """
const opener = openerOf(arguments[0]);
if (!opener || isNative(opener)) return ['', false];
const editable = /^(INPUT|TEXTAREA)$/.test(opener.tagName) && !opener.readOnly;
return [opener.getAttribute('aria-expanded') === 'true' ? 'open' : 'closed', editable];
"""
)

# Scrolls an open list, to its start or by most of its height. Returns false if it cannot, or need not since
# all options are in the document.
SCROLL_LIST = (
    _LIST
    + """
const [el, anywhere, start] = arguments;
const options = isNative(el) ? [] : optionsOf(el, anywhere);
if (!options.length) return false;
const last = options[options.length - 1];
let list = parentOf(last);
while (list && (list === document.body || list.clientHeight < 20 || list.scrollHeight <= list.clientHeight + 4
  || getComputedStyle(list).overflowY === 'visible')) list = parentOf(list);
if (!list || list === document.scrollingElement) return false;
const height = last.getBoundingClientRect().bottom - options[0].getBoundingClientRect().top;
if (height >= list.scrollHeight - 3 * last.clientHeight) return false;
const before = list.scrollTop;
list.scrollTop = start ? 0 : before + 0.8 * list.clientHeight;
return start || list.scrollTop !== before;
"""
)

# Chooses the option with this text and value; if the list is no form control, returns the element to click.
CHOOSE = (
    _LIST
    + """
const [el, text, value, anywhere] = arguments;
const option = optionsOf(el, anywhere).find((one) => valueOf(one) === value && nameOf(one) === text);
if (!isNative(el)) return option || null;
if (el.tagName === 'SELECT') {
  el.focus();
  option.selected = true;
} else {
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(el, option.value);
}
el.dispatchEvent(new Event('input', { bubbles: true }));
el.dispatchEvent(new Event('change', { bubbles: true }));
return null;
"""
)

FILE_FIELD = """
const el = arguments[0];
const isFile = (one) => one && one.tagName === 'INPUT' && one.type === 'file';
if (isFile(el)) return el;
if (isFile(el.control)) return el.control;
if (el.form && el.form.querySelector('input[type=file]')) return el.form.querySelector('input[type=file]');
// A button for a hidden field: searches the nearest part of the page that has a file field.
let part = el;
for (let level = 0; part && part !== document.body && level < 4; level++, part = part.parentElement) {
  const field = part.querySelector('input[type=file]');
  if (field) return field;
}
// Of a page with one file field, a button without a list of its own is for that.
const fields = document.querySelectorAll('input[type=file]');
return fields.length === 1 && !/^(INPUT|SELECT|TEXTAREA|OPTION|A)$/.test(el.tagName) ? fields[0] : null;
"""

# What marks the place of a frame, by its number.
FRAME_MARK = '<div data-frame="{}"></div>'
# Returns the HTML of what is shown, with the content of shadow roots in its place, and the frames in it.
VISIBLE_HTML = (
    _CONTENT
    + """
const inert = document.implementation.createHTMLDocument('');
const frames = [], stack = [[document.body, inert.body]];
const left = /^(SCRIPT|STYLE|NOSCRIPT|TEMPLATE|SVG)$/i;
const shows = (el) => !left.test(el.tagName)
  && (el.checkVisibility({ visibilityProperty: true }) || getComputedStyle(el).display === 'contents');
while (stack.length) {
  const [el, copy] = stack.pop();
  for (const node of content(el)) {
    if (node.nodeType === 3) copy.appendChild(inert.createTextNode(node.data));
    if (node.nodeType !== 1 || !shows(node)) continue;
    if (isFrame(node)) {
      const mark = inert.createElement('div');
      mark.setAttribute('data-frame', frames.length);
      copy.appendChild(mark);
      frames.push(node);
      continue;
    }
    const inner = inert.importNode(node, false);
    if (node.tagName === 'A' && node.href) inner.setAttribute('href', node.href);
    copy.appendChild(inner);
    stack.push([node, inner]);
  }
}
return [inert.body.innerHTML, frames];
"""
)

# Runs code in a document, or in any if none is given.
RUN = """
if (arguments[1] && arguments[1] !== performance.timeOrigin) throw new Error('the page has gone; look again');
return (0, eval)(arguments[0]);
"""
