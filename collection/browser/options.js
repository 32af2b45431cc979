// Finds the options of a <select>, a <datalist>, or an ARIA or list widget. Part of several scripts, after `content`.
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
  const others = anywhere ? [...inside(document, (one) => isList(one) && !isForeign(one, opener)), document] : [];
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
      if (root === document && fit !== isItem) continue;
      const found = inside(root, fit).filter((one) => root !== document || !isForeign(one, opener));
      if (found.length) return found;
    }
  }
  return [];
}
const valueOf = (option) => String(option.value ?? option.dataset.value ?? '');
const textOf = (option) => (option.tagName === 'OPTION' && option.label || option.innerText || option.textContent || '')
  .replace(/\s+/g, ' ').trim();
const nameOf = (option) => textOf(option) || valueOf(option);
