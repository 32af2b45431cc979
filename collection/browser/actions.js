// What actions do in the isolated world of a page; `rmsweb` is defined in world.js.
rmsweb.actions ??= (() => {
  const isField = (el) => /^(INPUT|TEXTAREA)$/.test(el.tagName);
  const isFrame = (el) => /^I?FRAME$/i.test(el.tagName);
  // What has the focus, also in a shadow tree.
  function focused() {
    let el = document.activeElement;
    while (el && rmsweb.activeIn(el)) el = rmsweb.activeIn(el);
    return el;
  }
  // The nodes that are shown in an element: of its shadow root, or those assigned to a slot.
  function content(el) {
    if (el.tagName === 'SLOT' && el.assignedNodes().length) return el.assignedNodes();
    return Array.from((rmsweb.rootOf(el) || el).childNodes);
  }
  function changed(el) {
    for (const name of ['input', 'change']) el.dispatchEvent(new Event(name, { bubbles: true }));
  }
  // Sets the value of a field in one event.
  function setValue(el, text) {
    const owner = el.tagName === 'TEXTAREA' ? HTMLTextAreaElement : HTMLInputElement;
    Object.getOwnPropertyDescriptor(owner.prototype, 'value').set.call(el, text);
  }
  function scrollBy(el, top) {
    const before = el.scrollTop;
    el.scrollBy({ top, behavior: 'instant' });
    return el.scrollTop !== before;
  }
  // The element of a number in a document, or in any if none is given; null if it is gone. Another document begins its
  // numbers again.
  function find(uid, creation) {
    const el = creation && creation !== performance.timeOrigin ? null : rmsweb.elements.get(uid);
    return el && el.isConnected ? el : null;
  }
  // Scrolls the element into view. Returns the first of its centre and inset corners at which a click would hit the element
  // itself, in the window of its frame; null if there is none.
  function clickPoint(el) {
    const isArea = el.tagName === 'AREA';
    const images = () => document.querySelectorAll(`img[usemap="#${CSS.escape(el.closest('map').name)}"]`);
    const base = isArea ? Array.from(images()).find((one) => one.checkVisibility()) : el;
    if (!base) return null;
    const inView = (r) => r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight;
    function show() {
      base.scrollIntoView({ block: 'center', inline: 'nearest', behavior: 'instant' });
      if (!isArea) return;
      // The image may be larger than the window.
      const [x, y] = pointsOfArea(base.getBoundingClientRect())[0];
      window.scrollBy({ left: x - innerWidth / 2, top: y - innerHeight / 2, behavior: 'instant' });
    }
    // A frame does not know if it is in view itself.
    if (window !== window.top || !inView(base.getBoundingClientRect())) show();
    function at(x, y) {
      let top = Document.prototype.elementFromPoint.call(document, x, y);
      while (top) {
        const root = rmsweb.rootOf(top);
        const inner = root && root.elementFromPoint(x, y);
        if (!inner || inner === top) break;
        top = inner;
      }
      return top;
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
      const numbers = (el.coords.match(/-?[\d.]+/g) || []).map((one) => scale * one);
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
    function hit() {
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
    const found = hit();
    if (found) return found;
    // It may be outside the visible part of a list that scrolls.
    show();
    return hit();
  }
  // The field that text for the element is meant for: itself, or the only one in it, which it shows.
  function field(el) {
    if (/^(INPUT|TEXTAREA|SELECT|BUTTON|OPTION|LABEL)$/.test(el.tagName) || el.isContentEditable) return el;
    const fields = el.querySelectorAll('input[type=range], [role=slider]');
    return fields.length === 1 && !el.matches('[role=slider]') ? fields[0] : el;
  }
  // 'type': the element takes keys; 'set': only its value can be set; 'none': no text; 'slider': a number by keys or mouse;
  // 'focus': a click on it may give the focus to what takes the keys.
  function typingKind(el) {
    if (el.readOnly || el.disabled) return 'none';
    if (el.tagName === 'INPUT') {
      if (['date', 'time', 'month', 'week', 'datetime-local', 'color', 'range'].includes(el.type)) return 'set';
      return /^(checkbox|radio|button|submit|reset|image|file|hidden)$/.test(el.type) ? 'none' : 'type';
    }
    if (/^(SELECT|OPTION|LABEL)$/.test(el.tagName)) return 'none';
    if (isField(el) || el.isContentEditable) return 'type';
    return el.getAttribute('role') === 'slider' ? 'slider' : 'focus';
  }
  // Value, minimum and maximum of a slider; null for what is not known. Then two points: the middle of its thumb, and
  // `share` of its track, the nearest element around it that is much longer.
  function slider(el, share) {
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
  }
  function setField(el, text) {
    el.focus();
    setValue(el, text);
    changed(el);
  }
  // Selects the old text, so that typed keys replace it and the page sees one change from the old to the new text. Returns
  // true if the field may show suggestions shortly after the last key.
  function prepareTyping(el, clear) {
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
  }
  // The field that has the focus; null if that is none, or is in a frame.
  function focusedField() {
    const el = focused();
    return el && isField(el) ? el : null;
  }
  function focusedInShadow(el) {
    const root = el.getRootNode();
    return Boolean(root.host && root.activeElement && el.contains(root.activeElement));
  }
  // Sets or extends the text of a field in one event; returns whether the field has taken it.
  function setText(el, text, clear) {
    const value = clear ? text : el.value + text;
    el.focus();
    setValue(el, value);
    changed(el);
    el.dispatchEvent(new KeyboardEvent('keyup', { bubbles: true }));
    return el.value === value;
  }
  // Kind and text of the field that takes the keys: the element, or one that has the focus. The kind is '' if there is
  // none; null says that it cannot be known.
  function typed(target) {
    let el = target;
    const takes = (one) => one && (isField(one) || one.isContentEditable);
    if (!takes(el)) {
      el = focused();
      if (el && /^(IFRAME|FRAME|OBJECT|EMBED)$/.test(el.tagName)) return null;
    }
    if (!takes(el)) return ['', ''];
    return [String(el.type || 'text'), String(el.isContentEditable ? el.innerText : el.value).slice(0, 10000)];
  }
  function selectFocused() {
    const el = focused();
    if (el && el.select) el.select();
    else if (el && el.isContentEditable) getSelection().selectAllChildren(el);
  }
  // What scrolls in a page that does not: the part around the middle of the window, else the largest one.
  function scroller() {
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
  }
  function scrollPage(amount) {
    return scrollBy(document.scrollingElement || document.documentElement, amount * innerHeight);
  }
  function scrollElement(start, amount) {
    let el = start;
    if (el.tagName === 'IFRAME') {
      const page = el.contentDocument && el.contentDocument.scrollingElement;
      return Boolean(page) && scrollBy(page, amount * el.clientHeight);
    }
    while (el && el.scrollHeight <= el.clientHeight) el = el.parentElement;
    return Boolean(el) && scrollBy(el, amount * el.clientHeight);
  }
  // Whether the text was found, and otherwise the frames in which it may be.
  function scrollToText(text) {
    const wanted = text.toLowerCase().replace(/\s+/g, ' ').trim();
    const stack = [document.body], frames = [];
    while (stack.length) {
      const node = stack.pop();
      if (node.nodeType === 1) {
        if (isFrame(node)) { if (node.checkVisibility({ visibilityProperty: true })) frames.push(node); }
        else for (const inner of content(node).reverse()) stack.push(inner);
        continue;
      }
      if (node.nodeType !== 3 || !node.data.toLowerCase().replace(/\s+/g, ' ').includes(wanted)) continue;
      const el = node.parentElement || node.getRootNode().host;
      if (!el.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
      el.scrollIntoView({ block: 'center', behavior: 'instant' });
      return [true, []];
    }
    return [false, frames];
  }
  // The options of a <select>, a <datalist>, or an ARIA or list widget.
  const roleOf = (el) => el.getAttribute('role');
  const ITEM = /^(option|menuitem|menuitemradio|menuitemcheckbox|treeitem)$/, LIST = /^(listbox|menu|tree)$/;
  // All elements below one that fit, through shadow roots and slots.
  function inside(root, fits) {
    const found = [], stack = Array.from(content(root)).reverse();
    while (stack.length) {
      const node = stack.pop();
      if (node.nodeType !== 1) continue;
      if (fits(node)) found.push(node);
      stack.push(...Array.from(content(node)).reverse());
    }
    return found;
  }
  const isNative = (el) => el.tagName === 'SELECT' || Boolean(el.list);
  const isOpener = (el) => roleOf(el) === 'combobox' || el.hasAttribute('aria-expanded')
    || /^(true|listbox|menu|tree)$/.test(el.getAttribute('aria-haspopup') || '');
  // What opens the list: the element, or one in it.
  const openerOf = (el) => (isNative(el) || isOpener(el) ? el : inside(el, isOpener)[0] || null);
  const parentOf = (el) => el.parentElement || el.getRootNode().host || null;
  const small = (el) => { const box = el.getBoundingClientRect(); return box.width < 2 || box.height < 2; };
  // Lists for screen readers only have no size.
  function shows(el) {
    if (small(el) || !el.checkVisibility({ visibilityProperty: true })) return false;
    for (let up = parentOf(el), level = 0; up && level < 6; up = parentOf(up), level++) {
      if (small(up) && getComputedStyle(up).overflow !== 'visible' && getComputedStyle(up).display !== 'contents') return false;
    }
    return true;
  }
  const enabled = (el) => roleOf(el) !== 'presentation' && el.getAttribute('aria-disabled') !== 'true' && !el.matches(':disabled');
  // What can be clicked beside a list that only screen readers see.
  function rowsBeside(list) {
    const clickable = (el) => getComputedStyle(el).cursor === 'pointer' && el.innerText && shows(el);
    for (let up = list, level = 0; up && up !== document.body && level < 5; up = parentOf(up), level++) {
      const rows = inside(up, clickable).filter((el) => !clickable(parentOf(el)));
      if (rows.length) return rows;
    }
    return [];
  }
  // Another element's list, or a part of it.
  function isForeign(node, opener) {
    for (let up = node; up && up.getAttribute; up = parentOf(up)) {
      if (up === opener) return false;
      if (isOpener(up) && !ITEM.test(roleOf(up))) return true;
      const owner = up.id && up.getRootNode().querySelector(`[aria-controls~="${CSS.escape(up.id)}"]`);
      if (owner && owner !== opener && isOpener(owner) && !ITEM.test(roleOf(owner))) return true;
    }
    return false;
  }
  function optionsOf(el, anywhere) {
    if (isNative(el)) {
      const options = Array.from((el.list || el).options);
      return options.filter((one) => !one.matches(':disabled, optgroup:disabled *'));
    }
    const opener = openerOf(el) || el, tree = opener.getRootNode();
    const ids = ['aria-controls', 'aria-owns'].flatMap((name) => (opener.getAttribute(name) || '').split(' '));
    const owned = ids.map((id) => id && ((tree.getElementById && tree.getElementById(id)) || document.getElementById(id))).filter(Boolean);
    const isList = (one) => LIST.test(roleOf(one)) && shows(one);
    const near = [...owned, ...inside(el, isList)];
    const most = (lists) => lists.reduce((best, one) => (one.length > best.length ? one : best), []);
    const page = document.documentElement;
    const others = anywhere ? [...inside(page, (one) => isList(one) && !isForeign(one, opener)), page] : [];
    const roots = [...near, el, ...others];
    const isItem = (one) => ITEM.test(roleOf(one)) && shows(one) && enabled(one);
    const fits = [isItem, (one) => one.tagName === 'LI' && shows(one) && enabled(one)];
    // What is chosen may be in a list of its own beside that of what can be chosen.
    for (const some of [owned, near]) {
      const found = most(some.map((root) => inside(root, isItem)));
      if (found.length) return found;
    }
    for (const list of owned) {
      const found = anywhere ? rowsBeside(list) : [];
      if (found.length) return found;
    }
    for (const fit of fits) {
      for (const root of roots) {
        if (root === page && fit !== isItem) continue;
        const found = inside(root, fit).filter((one) => root !== page || !isForeign(one, opener));
        if (found.length) return found;
      }
    }
    return [];
  }
  const valueOf = (option) => String(option.value ?? option.getAttribute('value') ?? option.dataset.value ?? '');
  const textOf = (option) => (option.tagName === 'OPTION' && option.label || option.innerText || option.textContent || '')
    .replace(/\s+/g, ' ').trim();
  const nameOf = (option) => textOf(option) || valueOf(option);
  // Text and value of every enabled option.
  function options(el, anywhere) {
    return optionsOf(el, anywhere).map((option) => [nameOf(option), valueOf(option)]);
  }
  // 'open', 'closed', or '' if the element opens no list; then, if a text can be typed to search in it.
  function opens(el) {
    const opener = openerOf(el);
    if (!opener || isNative(opener)) return ['', false];
    return [opener.getAttribute('aria-expanded') === 'true' ? 'open' : 'closed', isField(opener) && !opener.readOnly];
  }
  // Scrolls an open list, to its start or by most of its height. Returns false if it cannot, or need not since all options
  // are in the document.
  function scrollList(el, anywhere, start) {
    const all = isNative(el) ? [] : optionsOf(el, anywhere);
    if (!all.length) return false;
    const last = all[all.length - 1];
    let list = parentOf(last);
    while (list && (list === document.body || list.clientHeight < 20 || list.scrollHeight <= list.clientHeight + 4
      || getComputedStyle(list).overflowY === 'visible')) list = parentOf(list);
    if (!list || list === document.scrollingElement) return false;
    const height = last.getBoundingClientRect().bottom - all[0].getBoundingClientRect().top;
    if (height >= list.scrollHeight - 3 * last.clientHeight) return false;
    const before = list.scrollTop;
    list.scrollTop = start ? 0 : before + 0.8 * list.clientHeight;
    return start || list.scrollTop !== before;
  }
  // Chooses the option with this text and value; if the list is no form control, returns the element to click.
  function choose(el, text, value, anywhere) {
    const option = optionsOf(el, anywhere).find((one) => valueOf(one) === value && nameOf(one) === text);
    if (!isNative(el)) return option || null;
    if (el.tagName === 'SELECT') {
      el.focus();
      option.selected = true;
    } else {
      setValue(el, option.value);
    }
    changed(el);
    return null;
  }
  function fileField(el) {
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
  }
  // The HTML of what is shown, with the content of shadow roots in its place, and the frames in it, whose places
  // `<div data-frame="NUMBER">` marks.
  function visibleHtml() {
    const inert = document.implementation.createHTMLDocument('');
    const frames = [], stack = [[document.body, inert.body]];
    const left = /^(SCRIPT|STYLE|NOSCRIPT|TEMPLATE|SVG)$/i;
    const visible = (el) => !left.test(el.tagName)
      && (el.checkVisibility({ visibilityProperty: true }) || getComputedStyle(el).display === 'contents');
    while (stack.length) {
      const [el, copy] = stack.pop();
      for (const node of content(el)) {
        if (node.nodeType === 3) copy.appendChild(inert.createTextNode(node.data));
        if (node.nodeType !== 1 || !visible(node)) continue;
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
  }
  return {
    find, clickPoint, field, typingKind, slider, setField, prepareTyping, focusedField,
    focusedInShadow, setText, typed, selectFocused, scroller, scrollPage, scrollElement, scrollToText,
    isField, options, opens, scrollList, choose, fileField, visibleHtml,
  };
})();
