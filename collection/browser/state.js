// Reads what a document holds that its address alone does not bring back, and puts it into another one.
// arguments: what is to be done, and what `take` has returned before. Returns the document's frames and, for `take`, its
// content and which elements the agent has seen.
const [task, saved] = arguments;
const EDITABLE = (el) => el.isContentEditable && !(el.parentElement && el.parentElement.isContentEditable);
const KEPT = new Set(['submit', 'button', 'image', 'reset', 'file']);  // Their values are the page's.
const nameOf = (el) => Object.getOwnPropertyDescriptor(Element.prototype, 'localName').get.call(el);
const attribute = (el, name) => Element.prototype.getAttribute.call(el, name) || '';

// All elements in order, also in shadow trees. Their names tell which element of another document is meant: the tag
// with the attributes that identify it, and its number among those that share them.
function* elements() {
  const counts = new Map(), stack = [document.documentElement];
  while (stack.length) {
    const el = stack.pop();
    if (!el) continue;
    const kind = [nameOf(el), attribute(el, 'id'), attribute(el, 'name'), attribute(el, 'type')].join(' ').trim();
    const count = (counts.get(kind) || 0) + 1;
    counts.set(kind, count);
    yield [`${kind} ${count}`, el];
    for (const root of [el, rmsweb.rootOf(el)]) {
      for (let child = root && root.lastElementChild; child; child = child.previousElementSibling) stack.push(child);
    }
  }
}

function focused() {
  let el = document.activeElement;
  while (el && rmsweb.activeIn(el)) el = rmsweb.activeIn(el);
  return el === document.body || el === document.documentElement ? null : el;
}

function valueOf(el) {
  const tag = nameOf(el);
  if (tag === 'input' && /^(checkbox|radio)$/.test(el.type)) return [el.checked, el.indeterminate];
  if (tag === 'textarea' || (tag === 'input' && !KEPT.has(el.type))) return el.value;
  if (tag === 'select') return Array.from(el.options).flatMap((one, i) => (one.selected ? [i] : []));
  if (tag === 'details') return el.open;
  return EDITABLE(el) ? el.innerHTML : null;
}

function caretOf(el) {
  // Fields without text to select have no caret, or throw.
  try { return [el.selectionStart ?? null, el.selectionEnd ?? null]; } catch { return [null, null]; }
}

// Browsers keep no order.
const sorted = (storages) => storages.map((one) => [...one].sort());

function setStorages(wanted) {
  const found = sorted(rmsweb.storages());
  ['localStorage', 'sessionStorage'].forEach((kind, i) => {
    if (JSON.stringify(found[i]) === JSON.stringify(wanted[i])) return;
    window[kind].clear();
    for (const [name, value] of wanted[i]) window[kind].setItem(name, value);
  });
}

// In an empty document of the origin, before the page's own scripts run.
function store() { setStorages(saved.found); }

function take() {
  const found = [], seen = [], active = focused(), { first, seen: known } = rmsweb.snapshots || { first: true };
  for (const [name, el] of elements()) {
    if (known && known.has(el)) seen.push(name);
    const value = valueOf(el), scroll = el.scrollLeft || el.scrollTop ? [el.scrollLeft, el.scrollTop] : null;
    const focus = el === active ? caretOf(el) : null;
    if (value !== null || scroll || focus) found.push([name, value, scroll, focus]);
  }
  return {
    content: {
      url: location.href, referrer: document.referrer, title: document.title, text: document.documentElement.innerText, origin,
      storages: sorted(rmsweb.storages()), elements: found,
    },
    found: sorted(rmsweb.foundStorages || []),
    marks: { first, seen },
  };
}

function changed(el) {
  for (const name of ['input', 'change']) el.dispatchEvent(new Event(name, { bubbles: true, composed: name === 'input' }));
}

function setValue(el, value) {
  const tag = nameOf(el);
  if (JSON.stringify(valueOf(el)) === JSON.stringify(value)) return;
  if (tag === 'input' && /^(checkbox|radio)$/.test(el.type)) {
    // Pages and their libraries listen for clicks at boxes.
    if (el.checked !== value[0] && (value[0] || el.type === 'checkbox')) el.click();
    if (el.checked !== value[0]) { el.checked = value[0]; changed(el); }
    el.indeterminate = value[1];
  } else if (tag === 'details') {
    el.open = value;
  } else {
    if (tag === 'select') Array.from(el.options).forEach((one, i) => { one.selected = value.includes(i); });
    else if (/^(input|textarea)$/.test(tag)) {
      const owner = tag === 'input' ? HTMLInputElement : HTMLTextAreaElement;
      Object.getOwnPropertyDescriptor(owner.prototype, 'value').set.call(el, value);
    } else el.innerHTML = value;
    changed(el);
  }
}

async function put() {
  if (document.readyState !== 'complete') await new Promise((done) => { addEventListener('load', done, { once: true }); });
  if (window === top) setStorages(saved.content.storages);
  const wanted = new Map(saved.content.elements.map(([name, ...state]) => [name, state])), active = focused();
  let focus = null;
  // First all values: an event at one may change another, and where the page scrolls to.
  for (const [name, el] of Array.from(elements())) {
    const [value, , caret] = wanted.get(name) || [null, null, null];
    if (value !== null && valueOf(el) !== null) setValue(el, value);
    if (caret) focus = [el, caret];
  }
  if (focus) {
    const [el, [start, end]] = focus;
    if (el !== active) el.focus({ preventScroll: true });
    if (start !== null && (el.selectionStart !== start || el.selectionEnd !== end)) el.setSelectionRange(start, end);
  } else if (active) active.blur();
  for (const [name, el] of Array.from(elements())) {
    const [left, top] = (wanted.get(name) || [])[1] || [0, 0];
    if (el.scrollLeft !== left || el.scrollTop !== top) el.scrollTo({ left, top, behavior: 'instant' });
  }
}

// The next snapshot marks the same elements as new.
function mark() {
  if (!rmsweb.snapshots) return;
  const seen = new Set(saved.marks.seen);
  rmsweb.snapshots.first = saved.marks.first;
  rmsweb.snapshots.seen = new WeakSet();
  for (const [name, el] of elements()) if (seen.has(name)) rmsweb.snapshots.seen.add(el);
}

return Promise.resolve({ take, store, put, mark }[task]()).then((answer) => (
  { ...answer, frames: Array.from(elements(), ([, el]) => el).filter((el) => /^i?frame$/.test(nameOf(el))) }));
