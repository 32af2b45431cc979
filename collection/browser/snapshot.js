// Walks a frame: finds visible text, elements that can be acted on, covered elements and new elements.
// arguments[0]: {peek: do not update the marks for new elements, known: the frame's parent was in an earlier
// snapshot, covered: the frame itself is covered, bounds and view: the part of the frame on the page and in the
// window (left, top, right, bottom) or null, max_lines, max_chars: limits that end the walk}.
// Returns {url, title, scroll, lines, frames, counts, first, document, status, cut}. A line is
// [depth, tag, text, attributes, flags, uid, rect, marker, above, below, frame, href, sure]; a text line has an
// empty tag and its element's tag as `href`; `frame` counts from 1 into `frames`, whose entries are
// [element, x, y, covered, bounds, view, scale].
const options = arguments[0];
const NEW = 1, INTERACTIVE = 2, SECRET = 4;
const INLINE = 0, SPACE = 1, BLOCK = 2;  // Separator after an element's text.
// Evidence that an element is interactive, weakest first.
const NO = 0, PRESS = 1, CLICK = 2, WIDGET = 3;
// Bounds on the time and the answer for pages of any size.
const MAX_VISITED = 100000, MAX_TEXT = 40000, MAX_URL = 4096, MAX_OPTIONS = 50, BIG_PAGE = 3000;
const MAX_SELECTOR = 1000, MAX_HOVER_RULES = 300, MAX_LOOKS = 20000;
const state = (rmsweb.snapshots ??= { first: true, ids: new WeakMap(), seen: new WeakSet(), secrets: new WeakSet(), hovers: new WeakMap(), next: 1 });
const first = state.first;
const markNew = !first || options.known;

// Named form fields and images shadow properties of the form and the document, so prototype getters are used.
const getter = (owner, name) => {
  const get = Object.getOwnPropertyDescriptor(owner, name).get;
  return (one) => get.call(one);
};
const typeOf = getter(Node.prototype, 'nodeType'), tagOf = getter(Element.prototype, 'tagName');
const firstOf = getter(Node.prototype, 'firstChild'), nextOf = getter(Node.prototype, 'nextSibling');
const parentOf = getter(Node.prototype, 'parentElement'), rectOf = (el) => Element.prototype.getBoundingClientRect.call(el);
const hitAt = (x, y) => Document.prototype.elementFromPoint.call(document, x, y);
// A page whose loading stopped before its first element is never painted, and its screenshot would never finish.
if (window === window.top && !getter(Document.prototype, 'documentElement')(document)) {
  Document.prototype.open.call(document);
  Document.prototype.close.call(document);
}
const body = getter(Document.prototype, 'body')(document), html = getter(Document.prototype, 'documentElement')(document);
const childOf = getter(Element.prototype, 'firstElementChild');
const page = getter(Document.prototype, 'scrollingElement')(document) || html;

const SKIP = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'HEAD', 'META', 'LINK', 'TITLE', 'BR', 'DEFS', 'SYMBOL', 'DESC', 'METADATA']);
const LEAVES = new Set(['INPUT', 'SELECT', 'TEXTAREA', 'IFRAME', 'FRAME', 'CANVAS', 'VIDEO', 'AUDIO', 'OBJECT', 'EMBED', 'IMG']);
const CONTROLS = new Set(['BUTTON', 'INPUT', 'SELECT', 'TEXTAREA', 'SUMMARY', 'OPTION']);
const ROLES = new Set(['button', 'link', 'checkbox', 'radio', 'switch', 'tab', 'menuitem', 'menuitemcheckbox', 'menuitemradio',
  'option', 'combobox', 'listbox', 'textbox', 'searchbox', 'slider', 'spinbutton', 'treeitem']);
const CONTAINER_ROLES = new Set(['tab', 'treeitem', 'listbox', 'menuitem', 'option']);
const REGION_ROLES = new Set(['dialog', 'alertdialog', 'tabpanel', 'tablist', 'document', 'main', 'region', 'navigation', 'application']);
const PLAIN_ROLES = new Set(['none', 'presentation', 'heading', 'list', 'listitem', 'group', 'row', 'rowgroup', 'cell', 'gridcell',
  'table', 'status', 'alert', 'log', 'separator', 'tooltip', 'note', 'term', 'definition', 'paragraph', 'article', 'progressbar']);
const FORM_METHODS = ['getAttribute', 'hasAttribute', 'matches', 'closest', 'getClientRects', 'contains', 'querySelector',
  'querySelectorAll'];
const FORM_VALUES = ['shadowRoot', 'scrollWidth', 'scrollHeight', 'scrollTop', 'clientHeight', 'tabIndex', 'isContentEditable',
  'tagName', 'type', 'onclick'];
const HAND_CURSORS = new Set(['pointer', 'move', 'grab']);
// Roles of fields that may be listed although they are transparent: widgets draw them in their own way.
const FIELD_ROLES = '[role=combobox], [role=spinbutton], [role=searchbox], [role=textbox]';
const FORMATS = { date: 'YYYY-MM-DD', time: 'HH:MM', month: 'YYYY-MM', week: 'YYYY-Www', 'datetime-local': 'YYYY-MM-DDTHH:MM' };
const VW = innerWidth, VH = innerHeight;
const cross = (a, b) => ({
  left: Math.max(a.left, b.left), top: Math.max(a.top, b.top),
  right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom),
});
const area = (r) => Math.max(0, r.right - r.left) * Math.max(0, r.bottom - r.top);
const shown = (r) => r.right > r.left && r.bottom > r.top;
const apart = (a, b) => a.right <= b.left || a.left >= b.right || a.bottom <= b.top || a.top >= b.bottom;
const short = (r) => [Math.round(r.left), Math.round(r.top), Math.round(r.right), Math.round(r.bottom)];
const shifted = (r, dx, dy) => ({ left: r.left - dx, top: r.top - dy, right: r.right - dx, bottom: r.bottom - dy });
const scaled = (r, by) => ({ left: by * r.left, top: by * r.top, right: by * r.right, bottom: by * r.bottom });
const within = (own, given) => (given ? cross(own, given) : own);
const PAGE = within(
  { left: Math.max(-VW, -scrollX), top: Math.max(-VH, -scrollY), right: 2 * VW, bottom: 2 * VH }, options.bounds);
const VIEW = within({ left: 0, top: 0, right: VW, bottom: VH }, options.view);

const lines = [];
const frames = [];
const counts = { links: 0, elements: 0 };
const present = new Map();
const range = new Range();
let run = null;  // The current line of text, collected from inline pieces.
let chars = 0, visited = 0, cut = false;

// Half a surrogate pair cannot be sent to the driver.
const sound = (text) => (text.isWellFormed() ? text : text.toWellFormed());

function uidOf(el) {
  let uid = state.ids.get(el);
  if (!uid) state.ids.set(el, uid = state.next++);
  present.set(uid, el);
  return uid;
}

function add(line) {
  lines.push(line);
  chars += 10 + Math.min(line[0], 20) + Math.min(line[2].length, MAX_TEXT);
  for (const [name, value] of line[3] || []) chars += name.length + 2 + Math.min(value.length, 100);
  if (lines.length >= options.max_lines || chars >= options.max_chars) cut = true;
}

function flush() {
  if (run && run.text.trim()) add([run.depth, '', sound(run.text), null, 0, 0, null, '', 0, 0, 0, run.tag]);
  run = null;
}

function addText(text, depth, tag) {
  if (run && run.depth !== depth) flush();
  if (!run) run = { depth, text: '', tag };
  if (run.text.length < MAX_TEXT) run.text += text;
}

const listensForClick = (el) => (rmsweb.listensTo(el) & 1) > 0;
const listensForPress = (el) => (rmsweb.listensTo(el) & 2) > 0;

function disabled(el) {
  return el.matches(':disabled') || el.getAttribute('aria-disabled') === 'true' || el.closest('[inert]') !== null;
}

// A control that the mouse cannot reach: another element shows it.
function unreachable(el) {
  const rect = rectOf(el);
  if (!el.checkVisibility({ visibilityProperty: true }) || area(rect) <= 4) return true;
  if (rect.right + scrollX <= 0 || rect.bottom + scrollY <= 0) return true;
  const { pointerEvents, clip, clipPath } = getComputedStyle(el);
  return pointerEvents === 'none' || /^rect\((0|1)px,? (0|1)px/.test(clip) || /^inset\((50|100)%/.test(clipPath);
}

// The box, button or file field that a label is the only visible part of; null if it can be seen itself.
function hiddenControl(label) {
  const el = label.control;
  if (!el || tagOf(el) !== 'INPUT' || !/^(checkbox|radio|file)$/.test(el.type)) return null;
  return unreachable(el) ? el : null;
}

// The one field that an element without a role shows in its place: a slider's thumb, a list's box.
function innerField(el, tag) {
  if (tag === 'LABEL') return hiddenControl(el);
  if (CONTROLS.has(tag) || el.hasAttribute('role')) return null;
  const fields = el.querySelectorAll('input:not([type=hidden]), [role=combobox]');
  if (fields.length !== 1) return null;
  const [field] = fields;
  const known = field.type === 'range' || field.getAttribute('role') === 'combobox';
  return known && (unreachable(field) || covered(field, rectOf(field))) ? field : null;
}

// A handler on an element that fills half the window is delegation for the elements inside it.
function evidence(el, tag, style, rect, context) {
  if (tag === 'LABEL') return hiddenControl(el) ? WIDGET : NO;
  if (tag === 'BODY' || tag === 'HTML') return NO;
  if (tag === 'INPUT' && el.type === 'hidden') return NO;
  if (tag === 'INPUT' && el.labels && el.labels[0] && hiddenControl(el.labels[0]) && shown(rectOf(el.labels[0]))) return NO;
  if (CONTROLS.has(tag) || (tag === 'A' && el.hasAttribute('href'))) return WIDGET;
  const role = el.getAttribute('role');
  if (ROLES.has(role)) return CONTAINER_ROLES.has(role) ? CLICK : WIDGET;
  if (el.isContentEditable && !(el.parentElement && el.parentElement.isContentEditable)) return WIDGET;
  if (area(rect) > VW * VH / 2) return NO;
  if (REGION_ROLES.has(role)) return NO;
  if (listensForClick(el)) return CLICK;
  if (role && !PLAIN_ROLES.has(role) && isIcon(rect) && !context.widget) return PRESS;
  if (HAND_CURSORS.has(style.cursor) && context.cursor !== style.cursor) return CLICK;
  if (el.getAttribute('draggable') === 'true' && tag !== 'IMG') return CLICK;
  if (el.hasAttribute('tabindex') && el.tabIndex >= 0) return CLICK;
  return listensForPress(el) || openers.has(el) ? PRESS : NO;
}

// Rules that show something while the mouse is over something else, as [selector of that, selector of what is shown].
function hoverRules(rules) {
  const found = [];
  for (const { cssRules, selectorText, style } of rules) {
    if (cssRules && cssRules.length) found.push(...hoverRules(cssRules));
    if (!selectorText || !selectorText.includes(':hover') || selectorText.length > MAX_SELECTOR) continue;
    if (!/^(?!none)./.test(style.display) && style.visibility !== 'visible' && !(style.opacity > 0)) continue;
    for (const selector of selectorText.split(/,(?![^(]*\))/)) {
      // What can be matched without the mouse.
      const [, over, more] = selector.trim().replaceAll(':hover', ':not(_)').match(/^(.*?:not\(_\)[^\s>+~]*)([\s>+~].*)$/) || [];
      if (more) found.push([over, over + more]);
    }
  }
  return found;
}

// Elements with hidden content that style sheets show while the mouse is over them. Sheets of other sites cannot be read.
function findOpeners() {
  const found = new Set();
  let rulesLeft = MAX_HOVER_RULES, looksLeft = MAX_LOOKS;
  for (const sheet of document.styleSheets) {
    try {
      const rules = sheet.cssRules, known = state.hovers.get(sheet);
      if (!known || known.count !== rules.length) state.hovers.set(sheet, { count: rules.length, pairs: hoverRules(rules) });
      for (const [over, shows] of state.hovers.get(sheet).pairs) {
        if (--rulesLeft < 0) return found;
        for (const el of Document.prototype.querySelectorAll.call(document, shows)) {
          if (--looksLeft < 0) return found;
          if (el.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
          let opener = parentOf(el).closest(over);
          for (let one = el; !opener && --looksLeft > 0 && (one = one.previousElementSibling);) if (one.matches(over)) opener = one;
          found.add(opener);
        }
      }
    } catch { /* another site's, or a selector that only the parser knows */ }
  }
  return found;
}

const isIcon = ({ width, height }) => width >= 10 && width <= 50 && height >= 10 && height <= 50;

function repeatsAncestor(el, tag, rect, context) {
  if (!context.widget || CONTROLS.has(tag) || listensForClick(el) || el.hasAttribute('aria-label')) return false;
  return area(cross(rect, context.widget)) >= 0.99 * area(context.widget);
}

function deepElementAt(x, y) {
  let hit = hitAt(x, y);
  while (hit) {
    const root = rmsweb.rootOf(hit);
    const inner = root && root.elementFromPoint(x, y);
    if (!inner || inner === hit) return hit;
    hit = inner;
  }
  return null;
}

// Returns true if the hit node is the element, inside it, or inside its label; shadow trees count as their host.
function belongs(node, el) {
  while (node) {
    if (el.contains(node)) return true;
    const label = node.closest('label');
    if (label && label.control === el) return true;
    node = node.getRootNode().host;
  }
  return false;
}

// Tests the centre and inset corners of the first boxes: a link may be broken over several lines.
function covered(el, rect) {
  if (options.covered) return true;
  const boxes = el.getClientRects();
  let tested = false;
  for (let i = 0; i < Math.max(1, Math.min(boxes.length, 3)); i++) {
    const box = cross(boxes.length > 1 ? cross(boxes[i], rect) : rect, VIEW);
    if (!shown(box)) continue;
    tested = true;
    const dx = Math.min(4, (box.right - box.left) / 4), dy = Math.min(4, (box.bottom - box.top) / 4);
    const points = [[(box.left + box.right) / 2, (box.top + box.bottom) / 2], [box.left + dx, box.top + dy],
      [box.right - dx, box.top + dy], [box.left + dx, box.bottom - dy], [box.right - dx, box.bottom - dy]];
    for (const [x, y] of points) if (belongs(deepElementAt(x, y), el)) return false;
  }
  return tested;  // Points outside the window cannot be tested.
}

function shortLink(el) {
  const raw = (el.getAttribute('href') || '').slice(0, MAX_URL);
  if (!raw || raw.startsWith('#') || raw.startsWith('javascript:')) return '';
  const base = `${location.protocol}//${location.host}`;
  const text = el.href && el.href.startsWith && el.href.startsWith(base + '/') ? el.href.slice(base.length) : String(raw);
  return text.length <= 60 ? text : text.slice(0, 57) + '...';
}

// Secret fields: passwords, also while shown in plain text, and card numbers and codes.
function isSecret(el) {
  const name = `${el.getAttribute('name')} ${el.getAttribute('id')}`;
  if (el.type === 'password'
    || /\b(cc-number|cc-csc|current-password|new-password)\b/i.test(el.getAttribute('autocomplete') || '')
    || /card.?(num|no\b)|cc.?num|\b(cvv|cvc|csc|ccv)2?\b/i.test(name)) state.secrets.add(el);
  return state.secrets.has(el);
}

function labelsOf(list) {
  const labels = [];
  for (let i = 0; i < Math.min(list.length, MAX_OPTIONS); i++) labels.push(list[i].label.trim());
  return labels;
}

function attributesOf(el, tag) {
  const attributes = [];  // Pairs, because an object's keys would lose their order in the driver.
  const put = (name, value) => { if (value) attributes.push([name, sound(String(value).slice(0, 200))]); };
  put('id', el.getAttribute('id'));
  put('name', el.getAttribute('name'));
  if (tag === 'INPUT' && el.type !== 'text') put('type', el.type);
  if (tag === 'INPUT' && (el.type === 'checkbox' || el.type === 'radio')) {
    if (el.checked) put('checked', 'true');
    if (el.getAttribute('value') && el.value !== 'on') put('value', el.value);
  } else if (tag === 'INPUT' && el.type === 'file') {
    put('value', Array.from(el.files, (file) => file.name).join(', '));
  } else if (tag === 'INPUT' && isSecret(el)) {
    put('value', '*'.repeat(Math.min(el.value.length, 100)));
  } else if (tag === 'INPUT' || tag === 'TEXTAREA') {
    put('value', el.value);
  } else if (tag === 'SELECT') {
    put('value', labelsOf(el.selectedOptions).join(', '));
    put('options', labelsOf(el.options).join('|'));
  } else if (tag === 'OPTION' && el.selected) {
    put('selected', 'true');
  }
  const role = el.getAttribute('role');
  if (role !== 'presentation' && role !== 'none') put('role', role);
  for (const name of ['placeholder', 'aria-label', 'aria-expanded', 'aria-checked', 'title', 'alt']) put(name, el.getAttribute(name));
  if (el.getAttribute('aria-selected') === 'true') put('aria-selected', 'true');
  const on = (name) => el.getAttribute(name) !== null && el.getAttribute(name) !== 'false';
  if (el.required || on('aria-required')) put('required', 'true');
  if (el.readOnly || on('aria-readonly')) put('readonly', 'true');
  if (on('aria-invalid') || (CONTROLS.has(tag) && el.matches(':user-invalid'))) put('invalid', 'true');
  if (role !== 'combobox' && on('aria-haspopup')) put('haspopup', el.getAttribute('aria-haspopup'));
  if (on('aria-pressed')) put('pressed', el.getAttribute('aria-pressed'));
  if (on('aria-current')) put('current', el.getAttribute('aria-current'));
  if (tag === 'INPUT') {
    if (/^(number|range|date|time|month|week|datetime-local)$/.test(el.type)) { put('min', el.min); put('max', el.max); }
    put('format', FORMATS[el.type]);
  }
  for (const name of ['aria-valuenow', 'aria-valuetext', 'aria-valuemin', 'aria-valuemax']) put(name, el.getAttribute(name));
  if (tag === 'A' || tag === 'AREA') put('href', shortLink(el));
  return attributes;
}

// Returns the hidden content above and below a scroll container in units of its height; null if it cannot scroll.
function scrollOf(el, style) {
  if (el.scrollHeight <= el.clientHeight + 4 || el.clientHeight < 10 || el === page) return null;
  if (!/auto|scroll/.test(style.overflowY) && tagOf(el) !== 'TEXTAREA') return null;
  return [el.scrollTop / el.clientHeight, (el.scrollHeight - el.clientHeight - el.scrollTop) / el.clientHeight];
}

function textNode(node, el, context) {
  if (!context.visible || context.faint) return;
  const text = node.length > MAX_TEXT ? node.substringData(0, MAX_TEXT) : node.data;
  if (!text.trim()) { if (run) run.text += ' '; return; }
  range.selectNodeContents(node);
  const box = range.getBoundingClientRect();
  if (!shown(cross(box, context.clip)) || (box.right - box.left) * (box.bottom - box.top) < 1) return;
  addText(text, context.depth, tagOf(el).toLowerCase());
}

// Pending work of the walk; `close` is the separator after an element's text.
function childrenOf(el, context, close) {
  if (tagOf(el) === 'SLOT') {
    const assigned = el.assignedNodes();
    if (assigned.length) return { list: assigned, at: 0, node: null, el, context, close };
  }
  const root = rmsweb.rootOf(el);
  return { list: null, at: 0, node: firstOf(root || el), el, context, close };
}

// An explicit stack, because pages may be nested deeper than the call stack.
function walk(top) {
  const stack = [childrenOf(html, top, BLOCK)];
  stack[0].node = body;
  while (stack.length && !cut) {
    const level = stack[stack.length - 1];
    const node = level.list ? level.list[level.at++] : level.node;
    if (!node) {
      stack.pop();
      if (level.close === BLOCK) flush();
      else if (level.close === SPACE && run) run.text += ' ';
      continue;
    }
    if (!level.list) level.node = stack.length === 1 ? null : nextOf(node);
    const type = typeOf(node);
    if (type === 3) textNode(node, level.el, level.context);
    else if (type === 1) {
      const inner = element(node, level.context);
      if (inner) stack.push(inner);
    }
  }
}

// On a big page, elements outside the viewport are skipped with their children if their content does not
// overflow. Elements fixed to the window may be among the children, so those hit at typical positions of dialogs,
// bars and bubbles are kept.
let reached = null;
function findReached() {
  if (Document.prototype.getElementsByTagName.call(document, '*').length < BIG_PAGE) return;
  reached = new Set();
  for (const [x, y] of [[VW / 2, VH / 2], [VW / 2, 24], [VW / 2, VH - 24], [VW - 40, VH - 40]]) {
    for (let el = hitAt(x, y); el && !reached.has(el); el = parentOf(el)) reached.add(el);
  }
}

function liesOutside(el, rect) {
  return rect.width > 0 && rect.height > 0 && apart(rect, PAGE) && !el.shadowRoot
    && (childOf(el) === null || (reached !== null && !reached.has(el)))
    && el.scrollWidth <= Math.ceil(rect.width) && el.scrollHeight <= Math.ceil(rect.height);
}

function clipsOf(el, style, display, rect, context) {
  let clip = context.clip;
  const position = style.position;
  if (position === 'fixed') clip = PAGE;
  else if (position === 'absolute') clip = context.clipAbsolute;
  const own = clip;
  if (style.overflowX !== 'visible' && display !== 'inline' && el !== body && el !== html) clip = cross(clip, rect);
  const positioned = position !== 'static' || style.transform !== 'none';
  return { own, inner: clip, absolute: positioned ? clip : context.clipAbsolute };
}

// A form whose named fields shadow the methods used here has no line of its own; only its children are visited.
function isClobbered(form) {
  for (const name of FORM_METHODS) if (typeof form[name] !== 'function') return true;
  for (const name of FORM_VALUES) if (form[name] instanceof Node) return true;
  return false;
}

function element(el, context) {
  const tag = tagOf(el).toUpperCase();
  if (tag === 'BR') { flush(); return null; }
  if (SKIP.has(tag)) return null;
  if (++visited > MAX_VISITED) { cut = true; return null; }
  if (tag === 'FORM' && isClobbered(el)) return childrenOf(el, context, BLOCK);
  const rect = rectOf(el);
  if (liesOutside(el, rect)) { flush(); return null; }
  const style = getComputedStyle(el);
  const display = style.display;
  if (display === 'none') return null;
  const overlay = tag === 'INPUT' && /checkbox|radio|file/.test(el.type);
  const faint = context.faint || (parseFloat(style.opacity) < 0.02 && !overlay);
  if (faint && !context.faint && !el.matches(FIELD_ROLES) && !el.querySelector(FIELD_ROLES)) return null;
  const clips = clipsOf(el, style, display, rect, context);
  const visible = style.visibility === 'visible';
  const part = cross(rect, clips.own);
  // Of what is transparent, only fields that the mouse reaches count.
  const here = visible && shown(part) && (!faint || (el.matches(FIELD_ROLES) && shown(cross(part, VIEW)) && !covered(el, part)));
  const inline = display.startsWith('inline') || display === 'contents';
  const inner = { depth: context.depth, visible, faint, clip: clips.inner, clipAbsolute: clips.absolute,
    cursor: style.cursor, widget: context.widget };
  if (!inline) flush();
  let own = false;
  if (here) {
    counts.elements += 1;
    own = line(el, tag, style, part, rect, context, inner);
    if (tag === 'IMG' && el.hasAttribute('usemap')) addAreas(el, rect, inner.depth);
  }
  const close = !inline || own ? BLOCK : display !== 'inline' ? SPACE : INLINE;
  const opened = !LEAVES.has(tag) && (visible || childOf(el)) && style.contentVisibility !== 'hidden';
  if (opened) return childrenOf(el, inner, close);
  if (close === BLOCK) flush();
  else if (close === SPACE && run) run.text += ' ';
  return null;
}

// Areas of an image map have no boxes; their shapes are in pixels of the image.
function areaBox(el, image, rect) {
  const [left, top, scale] = rmsweb.placeOf(image);
  const numbers = ((el.getAttribute('coords') || '').match(/-?[\d.]+/g) || []).map((one) => scale * one);
  if (numbers.length < 3) return rect;
  if (numbers.length === 3) {
    const [x, y, radius] = numbers;
    return shifted({ left: x - radius, top: y - radius, right: x + radius, bottom: y + radius }, -left, -top);
  }
  const xs = numbers.filter((_, i) => i % 2 === 0), ys = numbers.filter((_, i) => i % 2 === 1);
  return shifted({ left: Math.min(...xs), top: Math.min(...ys), right: Math.max(...xs), bottom: Math.max(...ys) }, -left, -top);
}

function addAreas(image, rect, depth) {
  const name = (image.getAttribute('usemap') || '').replace(/^#/, '');
  const map = name && Document.prototype.querySelector.call(document, `map[name="${CSS.escape(name)}"]`);
  for (const el of map ? map.querySelectorAll('area') : []) {
    const box = cross(areaBox(el, image, rect), rect);
    if ((!el.hasAttribute('href') && !listensForClick(el)) || !shown(cross(box, PAGE))) continue;
    const uid = uidOf(el);
    const flags = INTERACTIVE | (markNew && !state.seen.has(el) ? NEW : 0);
    add([depth, 'area', '', attributesOf(el, 'AREA'), flags, uid, short(cross(box, VIEW)), '', 0, 0, 0,
      sound(String(el.href).slice(0, MAX_URL)), WIDGET]);
  }
}

// Adds the element's own line if it has one; its content is then one level deeper.
function line(el, tag, style, part, rect, context, inner) {
  const closed = rmsweb.isClosed(el);
  let marker = el.shadowRoot ? 'SHADOW(open)' : closed ? 'SHADOW(closed)' : '';
  const scroll = scrollOf(el, style);
  let sure = evidence(el, tag, style, rect, context);
  const control = sure ? innerField(el, tag) : null;
  if (sure && (disabled(control || el) || repeatsAncestor(el, tag, rect, context))) sure = NO;
  if (sure && tag === 'A') counts.links += 1;
  const candidate = sure > NO || scroll !== null;
  const hidden = candidate && covered(el, part);
  const frame = tag === 'IFRAME' || tag === 'FRAME';
  if (frame) marker = 'IFRAME';
  if (scroll) marker = 'SCROLL';
  const picture = tag === 'IMG' && (el.getAttribute('alt') || '').trim();
  if (!(candidate && !hidden) && !marker && !picture) return false;
  flush();
  let flags = 0;
  const uid = uidOf(el);
  if (candidate && !hidden) {
    flags |= INTERACTIVE;
    if (markNew && !state.seen.has(el)) flags |= NEW;
  }
  const frameState = frame && el.offsetWidth >= 200 && el.offsetHeight >= 200 ? frames.length + 1 : 0;
  if (frameState) {
    const [x, y, scale] = rmsweb.placeOf(el);
    const inFrame = (box) => scaled(shifted(box, x, y), 1 / scale);
    frames.push([el, x, y, covered(el, part), inFrame(part), inFrame(cross(part, VIEW)), scale]);
  }
  const attributes = candidate && !hidden ? attributesOf(control || el, control ? tagOf(control).toUpperCase() : tag) : picture ? [['alt', sound(picture.slice(0, 200))]] : [];
  if (tag === 'INPUT' && isSecret(el) && el.type !== 'password' && el.value) flags |= SECRET;
  add([inner.depth, tagOf(el).toLowerCase(), '', attributes, flags, uid, short(cross(part, VIEW)), marker,
    scroll ? scroll[0] : 0, scroll ? scroll[1] : 0, frameState, tag === 'A' ? sound(String(el.href).slice(0, MAX_URL)) : '', scroll || marker ? WIDGET : sure]);
  if (flags & INTERACTIVE && (tag === 'A' || tag === 'BUTTON' || el.getAttribute('role') === 'button')) inner.widget = rect;
  inner.depth += 1;
  return true;
}

// An element that only has listeners, and whose text is all in elements with an index of their own, is a
// container: a click on it means a click on one of them. Its line is removed and its content moves up.
function dropContainers() {
  for (let i = lines.length - 1; i >= 0; i--) {
    const [depth, tag, , attributes, flags, , , , , , , , sure] = lines[i];
    if (!tag || !(flags & INTERACTIVE) || sure === WIDGET) continue;
    let end = i + 1, indexed = 0, text = 0, cover = Infinity;
    for (; end < lines.length && lines[end][0] > depth; end++) {
      const line = lines[end];
      if (line[0] <= cover) cover = Infinity;
      if (line[4] & INTERACTIVE) { indexed += 1; cover = Math.min(cover, line[0]); }
      if (!line[1] && cover === Infinity) text += 1;
    }
    const named = attributes.some(([name]) => name === 'aria-label' || name === 'title');
    if (!indexed || (sure === CLICK && (text || named))) continue;
    for (let j = i + 1; j < end; j++) lines[j][0] -= 1;
    lines.splice(i, 1);
  }
}

// Elements with neither text nor a name are distinguished by their class.
function nameByClass() {
  lines.forEach(([depth, tag, , attributes, flags, uid], i) => {
    if (!(flags & INTERACTIVE) || attributes.length || CONTROLS.has(tag.toUpperCase())) return;
    if (i + 1 < lines.length && lines[i + 1][0] > depth) return;
    const name = present.get(uid).getAttribute('class');
    if (name) attributes.push(['class', sound(name.length <= 40 ? name : name.slice(0, 37) + '...')]);
  });
}

const top = { depth: 0, visible: true, faint: false, clip: PAGE, clipAbsolute: PAGE, cursor: 'auto', widget: null };
findReached();
const openers = findOpeners();
if (body) walk(top);
flush();
dropContainers();
nameByClass();

rmsweb.later(() => {
  state.first = false;
  if (options.peek) {
    for (const [uid, el] of present) rmsweb.elements.set(uid, el);
    return;
  }
  rmsweb.elements = present;
  for (const entry of lines) if (entry[4] & INTERACTIVE) state.seen.add(present.get(entry[5]));
});
return {
  url: location.href.slice(0, 8 * MAX_URL), title: sound(getter(Document.prototype, 'title')(document).slice(0, 500)), lines, frames, counts, cut, chars,
  scroll: page ? [page.scrollTop / VH, Math.max(0, page.scrollHeight - VH - page.scrollTop) / VH] : [0, 0], first,
  document: performance.timeOrigin, status: (performance.getEntriesByType('navigation')[0] || {}).responseStatus || null,
};
