// One walk over a frame: what is visible, what can be acted on, what is covered, what is new.
// arguments[0]: {peek: true leaves the marks for new elements as they are, known: whether the frame's
// parent had been looked at before, covered: whether the frame itself is covered}.
// Returns {url, title, scroll, lines, frames, counts, first, document}; a line is
// [depth, tag, text, attributes, flags, uid, rect, marker, above, below, frame, href, sure], where a text line
// has an empty tag and its element's tag as `href`; `frame` counts from 1 into `frames`, whose
// entries are [element, x, y, covered].
const options = arguments[0];
const KEY = Symbol.for('rmsweb.snapshot');
const NEW = 1, INTERACTIVE = 2;
// How sure it is that an element is meant to be acted on.
const NO = 0, PRESS = 1, CLICK = 2, WIDGET = 3;
const notes = window[Symbol.for('rmsweb.preload')];
let state = window[KEY];
const first = !state;
if (first) {
  state = { ids: new WeakMap(), elements: new Map(), seen: new WeakSet(), next: 1 };
  Object.defineProperty(window, KEY, { value: state });
}
const markNew = !first || options.known;

const SKIP = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'HEAD', 'META', 'LINK', 'TITLE', 'BR', 'DEFS', 'SYMBOL', 'DESC', 'METADATA']);
const LEAVES = new Set(['INPUT', 'SELECT', 'TEXTAREA', 'IFRAME', 'FRAME', 'CANVAS', 'VIDEO', 'AUDIO', 'OBJECT', 'EMBED', 'IMG']);
const CONTROLS = new Set(['BUTTON', 'INPUT', 'SELECT', 'TEXTAREA', 'SUMMARY', 'OPTION']);
const ROLES = new Set(['button', 'link', 'checkbox', 'radio', 'switch', 'tab', 'menuitem', 'menuitemcheckbox', 'menuitemradio',
  'option', 'combobox', 'listbox', 'textbox', 'searchbox', 'slider', 'spinbutton', 'treeitem']);
const CONTAINER_ROLES = new Set(['tab', 'treeitem', 'listbox', 'menuitem', 'option']);
const REGION_ROLES = new Set(['dialog', 'alertdialog', 'tabpanel', 'tablist', 'document', 'main', 'region', 'navigation', 'application']);
const PRESS_HANDLERS = ['onmousedown', 'onmouseup', 'onpointerdown', 'onpointerup', 'onkeydown', 'onkeyup'];
const VW = innerWidth, VH = innerHeight;
const PAGE = { left: Math.max(-VW, -scrollX), top: Math.max(-VH, -scrollY), right: 2 * VW, bottom: 2 * VH };
const VIEW = { left: 0, top: 0, right: VW, bottom: VH };

const lines = [];
const frames = [];
const counts = { links: 0, elements: 0 };
const present = new Map();
let run = null;  // The line of text being put together from inline pieces.

const cross = (a, b) => ({
  left: Math.max(a.left, b.left), top: Math.max(a.top, b.top),
  right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom),
});
const area = (r) => Math.max(0, r.right - r.left) * Math.max(0, r.bottom - r.top);
const shown = (r) => r.right > r.left && r.bottom > r.top;
const short = (r) => [Math.round(r.left), Math.round(r.top), Math.round(r.right), Math.round(r.bottom)];

function uidOf(el) {
  let uid = state.ids.get(el);
  if (!uid) state.ids.set(el, uid = state.next++);
  present.set(uid, el);
  return uid;
}

function flush() {
  if (run && run.text.trim()) lines.push([run.depth, '', run.text, null, 0, 0, null, '', 0, 0, 0, run.tag]);
  run = null;
}

function addText(text, depth, tag) {
  if (run && run.depth !== depth) flush();
  if (!run) run = { depth, text: '', tag };
  run.text += text;
}

function listensForClick(el) {
  return (notes && notes.clicks.has(el)) || typeof el.onclick === 'function' || typeof el.ondblclick === 'function';
}

function listensForPress(el) {
  return (notes && notes.presses.has(el)) || PRESS_HANDLERS.some((name) => typeof el[name] === 'function');
}

function disabled(el) {
  return el.matches(':disabled') || el.getAttribute('aria-disabled') === 'true' || el.closest('[inert]') !== null;
}

// A handler on something that fills half the window is a delegate for what lies in it.
function evidence(el, tag, style, rect, context) {
  if (tag === 'LABEL' || tag === 'BODY' || tag === 'HTML') return NO;
  if (tag === 'INPUT' && el.type === 'hidden') return NO;
  if (CONTROLS.has(tag) || (tag === 'A' && el.hasAttribute('href'))) return WIDGET;
  const role = el.getAttribute('role');
  if (ROLES.has(role)) return CONTAINER_ROLES.has(role) ? CLICK : WIDGET;
  if (el.isContentEditable && !(el.parentElement && el.parentElement.isContentEditable)) return WIDGET;
  if (area(rect) > VW * VH / 2) return NO;
  if (REGION_ROLES.has(role)) return NO;
  if (listensForClick(el)) return CLICK;
  if (style.cursor === 'pointer' && context.cursor !== 'pointer') return CLICK;
  if (el.hasAttribute('tabindex') && el.tabIndex >= 0) return CLICK;
  return listensForPress(el) ? PRESS : NO;
}

function repeatsAncestor(el, tag, rect, context) {
  if (!context.widget || CONTROLS.has(tag) || listensForClick(el) || el.hasAttribute('aria-label')) return false;
  return area(cross(rect, context.widget)) >= 0.99 * area(context.widget);
}

function deepElementAt(x, y) {
  let hit = document.elementFromPoint(x, y);
  while (hit) {
    const root = hit.shadowRoot || (notes && notes.closedRoots.get(hit));
    const inner = root && root.elementFromPoint(x, y);
    if (!inner || inner === hit) return hit;
    hit = inner;
  }
  return null;
}

function within(node, el) {
  for (; node; node = node.parentNode || node.host) {
    if (node === el) return true;
    if (node.tagName === 'LABEL' && node.control === el) return true;
  }
  return false;
}

function covered(el, rect) {
  if (options.covered) return true;
  const boxes = el.getClientRects();
  const box = cross(boxes.length > 1 ? cross(boxes[0], rect) : rect, VIEW);
  if (!shown(box)) return false;  // Outside the window nothing can be tested.
  const dx = Math.min(4, (box.right - box.left) / 4), dy = Math.min(4, (box.bottom - box.top) / 4);
  const points = [[(box.left + box.right) / 2, (box.top + box.bottom) / 2], [box.left + dx, box.top + dy],
    [box.right - dx, box.top + dy], [box.left + dx, box.bottom - dy], [box.right - dx, box.bottom - dy]];
  return !points.some(([x, y]) => within(deepElementAt(x, y), el));
}

function shortLink(el) {
  const raw = el.getAttribute('href') || '';
  if (!raw || raw.startsWith('#') || raw.startsWith('javascript:')) return '';
  const base = `${location.protocol}//${location.host}`;
  const text = el.href && el.href.startsWith && el.href.startsWith(base + '/') ? el.href.slice(base.length) : String(raw);
  return text.length <= 60 ? text : text.slice(0, 57) + '...';
}

function attributesOf(el, tag) {
  const attributes = [];  // Pairs: an object's keys would lose their order on the way.
  const put = (name, value) => { if (value) attributes.push([name, String(value).slice(0, 200)]); };
  put('id', el.getAttribute('id'));
  put('name', el.getAttribute('name'));
  if (tag === 'INPUT' && el.type !== 'text') put('type', el.type);
  if (tag === 'INPUT' && (el.type === 'checkbox' || el.type === 'radio')) {
    if (el.checked) put('checked', 'true');
    if (el.getAttribute('value') && el.value !== 'on') put('value', el.value);
  } else if (tag === 'INPUT' && el.type === 'password') {
    put('value', '*'.repeat(el.value.length));
  } else if (tag === 'INPUT' && el.type === 'file') {
    put('value', Array.from(el.files, (file) => file.name).join(', '));
  } else if (tag === 'INPUT' || tag === 'TEXTAREA') {
    put('value', el.value);
  } else if (tag === 'SELECT') {
    put('value', Array.from(el.selectedOptions, (option) => option.label.trim()).join(', '));
    put('options', Array.from(el.options, (option) => option.label.trim()).join('|'));
  } else if (tag === 'OPTION' && el.selected) {
    put('selected', 'true');
  }
  const role = el.getAttribute('role');
  if (role !== 'presentation' && role !== 'none') put('role', role);
  for (const name of ['placeholder', 'aria-label', 'aria-expanded', 'aria-checked', 'title', 'alt']) put(name, el.getAttribute(name));
  if (el.getAttribute('aria-selected') === 'true') put('aria-selected', 'true');
  if (tag === 'A') put('href', shortLink(el));
  return attributes;
}

// How far a scroll container has hidden content, in its own heights; null when it cannot scroll.
function scrollOf(el, style) {
  if (el.scrollHeight <= el.clientHeight + 4 || el.clientHeight < 10 || el === document.scrollingElement) return null;
  if (!/auto|scroll/.test(style.overflowY) && el.tagName !== 'TEXTAREA') return null;
  return [el.scrollTop / el.clientHeight, (el.scrollHeight - el.clientHeight - el.scrollTop) / el.clientHeight];
}

function textNode(node, el, context) {
  if (!context.visible) return;
  const text = node.data;
  if (!text.trim()) { if (run) run.text += ' '; return; }
  const range = document.createRange();
  range.selectNodeContents(node);
  const box = range.getBoundingClientRect();
  if (!shown(cross(box, context.clip)) || (box.right - box.left) * (box.bottom - box.top) < 1) return;
  addText(text, context.depth, el.tagName.toLowerCase());
}

function children(el, context) {
  const root = el.shadowRoot || (notes && notes.closedRoots.get(el));
  if (el.tagName === 'SLOT') {
    const assigned = el.assignedNodes();
    for (const node of assigned.length ? assigned : el.childNodes) visit(node, el, context);
    return;
  }
  for (const node of (root || el).childNodes) visit(node, el, context);
}

function visit(node, parent, context) {
  if (node.nodeType === Node.TEXT_NODE) textNode(node, parent, context);
  else if (node.nodeType === Node.ELEMENT_NODE) element(node, context);
}

function clipsOf(el, style, rect, context) {
  let clip = context.clip;
  if (style.position === 'fixed') clip = PAGE;
  else if (style.position === 'absolute') clip = context.clipAbsolute;
  const own = clip;
  if (style.overflowX !== 'visible' && style.display !== 'inline' && el !== document.body && el !== document.documentElement) clip = cross(clip, rect);
  const positioned = style.position !== 'static' || style.transform !== 'none';
  return { own, inner: clip, absolute: positioned ? clip : context.clipAbsolute };
}

function element(el, context) {
  const tag = el.tagName.toUpperCase();
  if (tag === 'BR') { flush(); return; }
  if (SKIP.has(tag)) return;
  const style = getComputedStyle(el);
  if (style.display === 'none') return;
  const overlay = tag === 'INPUT' && /checkbox|radio|file/.test(el.type);
  if (parseFloat(style.opacity) < 0.02 && !overlay) return;
  const rect = el.getBoundingClientRect();
  const clips = clipsOf(el, style, rect, context);
  const visible = style.visibility === 'visible';
  const part = cross(rect, clips.own);
  const here = visible && shown(part);
  const inline = style.display.startsWith('inline') || style.display === 'contents';
  const inner = { ...context, visible, clip: clips.inner, clipAbsolute: clips.absolute, cursor: style.cursor };
  if (!inline) flush();
  let own = false;
  if (here) {
    counts.elements += 1;
    own = line(el, tag, style, part, rect, context, inner);
  }
  if (!LEAVES.has(tag) && (visible || el.firstElementChild)) children(el, inner);
  if (!inline || own) flush();
  else if (style.display !== 'inline' && run) run.text += ' ';
}

// Adds the element's own line where it has one, and moves what lies inside one tab deeper.
function line(el, tag, style, part, rect, context, inner) {
  const closed = notes && notes.closedRoots.has(el);
  let marker = el.shadowRoot ? 'SHADOW(open)' : closed ? 'SHADOW(closed)' : '';
  const scroll = scrollOf(el, style);
  let sure = evidence(el, tag, style, rect, context);
  if (sure && (disabled(el) || repeatsAncestor(el, tag, rect, context))) sure = NO;
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
  const frameState = frame && rect.right - rect.left >= 200 && rect.bottom - rect.top >= 200 ? frames.length + 1 : 0;
  if (frameState) frames.push([el, rect.left + el.clientLeft, rect.top + el.clientTop, covered(el, part)]);
  const attributes = candidate && !hidden ? attributesOf(el, tag) : picture ? [['alt', picture]] : [];
  lines.push([inner.depth, el.tagName.toLowerCase(), '', attributes, flags, uid, short(cross(part, VIEW)), marker,
    scroll ? scroll[0] : 0, scroll ? scroll[1] : 0, frameState, tag === 'A' ? String(el.href) : '', scroll || marker ? WIDGET : sure]);
  if (flags & INTERACTIVE && (tag === 'A' || tag === 'BUTTON' || el.getAttribute('role') === 'button')) inner.widget = rect;
  inner.depth += 1;
  return true;
}

// An element that only listens, and whose text all lies in elements with an index of their own, is a
// container: acting on it means acting on one of them. Its line goes, what it holds moves up.
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

// What has neither text nor a name is told apart by its class.
function nameByClass() {
  lines.forEach(([depth, tag, , attributes, flags, uid], i) => {
    if (!(flags & INTERACTIVE) || attributes.length || CONTROLS.has(tag.toUpperCase())) return;
    if (i + 1 < lines.length && lines[i + 1][0] > depth) return;
    const name = present.get(uid).getAttribute('class');
    if (name) attributes.push(['class', name.length <= 40 ? name : name.slice(0, 37) + '...']);
  });
}

const top = { depth: 0, visible: true, clip: PAGE, clipAbsolute: PAGE, cursor: 'auto', widget: null };
if (document.body) element(document.body, top);
flush();
dropContainers();
nameByClass();

if (!options.peek) {
  state.elements = present;
  for (const entry of lines) if (entry[4] & INTERACTIVE) state.seen.add(present.get(entry[5]));
}
const page = document.scrollingElement || document.documentElement;
return {
  url: location.href, title: document.title, lines, frames, counts,
  scroll: [page.scrollTop / VH, Math.max(0, page.scrollHeight - VH - page.scrollTop) / VH], first,
  document: performance.timeOrigin,
};
