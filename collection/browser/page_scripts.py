"""Scripts that actions run in the isolated world of a page; `rmsweb` is defined in world.js."""

FIND = """
const el = rmsweb.elements.get(arguments[0]);
return el && el.isConnected ? el : null;
"""

# Scrolls the element into view. Returns the first of its centre and inset corners at which a click would hit
# the element itself, in the window of its frame.
CLICK_POINT = """
const el = arguments[0];
const inView = (r) => r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight;
// A frame does not know if it is in view itself.
if (window !== top || !inView(el.getBoundingClientRect())) {
  el.scrollIntoView({ block: 'center', inline: 'nearest', behavior: 'instant' });
}
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
  for (; node; node = node.parentNode || node.host) {
    if (node === el || (node.tagName === 'LABEL' && node.control === el)) return true;
  }
  return false;
}
for (const r of el.getClientRects()) {
  const left = Math.max(r.left, 0), top = Math.max(r.top, 0);
  const right = Math.min(r.right, innerWidth), bottom = Math.min(r.bottom, innerHeight);
  if (right <= left || bottom <= top) continue;
  const dx = Math.min(4, (right - left) / 4), dy = Math.min(4, (bottom - top) / 4);
  const points = [[(left + right) / 2, (top + bottom) / 2], [left + dx, top + dy], [right - dx, top + dy],
    [left + dx, bottom - dy], [right - dx, bottom - dy]];
  for (const [x, y] of points) if (within(at(x, y))) return [Math.round(x), Math.round(y)];
}
return null;
"""

# 'type': the element takes keys; 'set': only its value can be set; 'none', 'slider': no text; 'focus': a
# click on it may give the focus to what takes the keys.
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
if (!el.isConnected) return null;
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

# Returns [text, value] of every enabled option of a <select>, a <datalist>, or an ARIA or list widget; with
# `anywhere`, of any list on the page, because widgets open their list far from their element in the document.
_LIST = """
function optionsOf(el, anywhere) {
  if (el.tagName === 'SELECT' || el.list) {
    const options = Array.from((el.list || el).options);
    return options.filter((one) => !one.matches(':disabled, optgroup:disabled *'));
  }
  const tree = el.getRootNode();
  const ids = (el.getAttribute('aria-controls') || el.getAttribute('aria-owns') || '').split(' ');
  const byId = (id) => id && tree.getElementById && tree.getElementById(id);
  const roots = [el, ...ids.map(byId).filter(Boolean)];
  if (anywhere) roots.push(...document.querySelectorAll('[role=listbox], [role=menu]'), document);
  const items = '[role=option], [role=menuitem], [role=menuitemradio]';
  for (const selector of [items, 'li']) {
    for (const root of roots) {
      if (root === document && selector === 'li') continue;
      const found = Array.from(root.querySelectorAll(selector)).filter((one) => one.checkVisibility(
        { visibilityProperty: true }) && one.getAttribute('aria-disabled') !== 'true');
      if (found.length) return found;
    }
  }
  return [];
}
const textOf = (option) => (option.label || option.innerText || option.textContent || option.value || '')
  .replace(/\\s+/g, ' ').trim();
"""
OPTIONS = (
    _LIST
    + """
const valueOf = (option) => String(option.value ?? option.dataset.value ?? '');
return optionsOf(arguments[0], arguments[1]).map((option) => [textOf(option), valueOf(option)]);
"""
)

# Returns true if a click may open a list.
OPENS = """
const el = arguments[0];
return el.tagName !== 'SELECT' && (el.getAttribute('role') === 'combobox' || el.hasAttribute('aria-expanded')
  || /^(true|listbox|menu)$/.test(el.getAttribute('aria-haspopup') || ''));
"""

# Chooses option number n; if the list is not a form control, returns the element to click instead.
CHOOSE = (
    _LIST
    + """
const [el, number, anywhere] = arguments;
const option = optionsOf(el, anywhere)[number];
if (el.tagName !== 'SELECT' && !el.list) return option;
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
return null;
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

RUN = "return (0, eval)(arguments[0]);"
