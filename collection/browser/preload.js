// Runs before a page's own scripts: notes what cannot be asked for afterwards, namely closed shadow
// roots, which elements listen for the mouse, what was loaded, and the built-in functions as they were.
// Nothing the page can see is changed in behaviour.
(() => {
  const KEY = 'rmsweb.preload';  // Not a symbol: pages may replace Symbol.for.
  if (window[KEY]) return;
  const notes = { closedRoots: new WeakMap(), clicks: new WeakSet(), presses: new WeakSet(), mend, restore };
  // Of the requests that have ended, and those that were waited for to no end: see settle.js.
  notes.pictures = { arrived: { __proto__: null }, vain: { __proto__: null } };
  Object.defineProperty(window, KEY, { value: notes });

  // The page's own list is short, and the page may clear it. Where the page has broken it, nothing is noted.
  if (window === top) {
    let room = 10000;
    const { arrived } = notes.pictures;
    new PerformanceObserver((list) => {
      try {
        const entries = list.getEntries();
        for (let i = 0; i < entries.length && room-- > 0; i++) arrived[entries[i].name] = true;
      } catch {}
    }).observe({ type: 'resource', buffered: true });
  }

  const attachShadow = Element.prototype.attachShadow;
  Element.prototype.attachShadow = function (options) {
    const root = attachShadow.call(this, options);
    if (root.mode === 'closed') notes.closedRoots.set(this, root);
    return root;
  };

  const CLICKS = new Set(['click', 'dblclick']);
  const PRESSES = new Set(['mousedown', 'mouseup', 'pointerdown', 'pointerup']);
  const addEventListener = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, listener, options) {
    if (listener && this instanceof Element) {
      if (CLICKS.has(type)) notes.clicks.add(this);
      else if (PRESSES.has(type)) notes.presses.add(this);
    }
    return addEventListener.call(this, type, listener, options);
  };

  // Our scripts run among the page's. What it has replaced of the language and the document is put back
  // while they do, and then is the page's again.
  const { getOwnPropertyDescriptor, getPrototypeOf } = Object;
  const { defineProperty, deleteProperty, ownKeys } = Reflect;
  const CLASSES = ['Object', 'Array', 'String', 'Number', 'Function', 'Symbol', 'Promise', 'RegExp', 'Set', 'Map', 'WeakMap',
    'WeakSet', 'EventTarget', 'Node', 'Element', 'HTMLElement', 'Document', 'DocumentFragment', 'ShadowRoot', 'CharacterData',
    'Range', 'DOMRect', 'DOMRectReadOnly', 'NodeList', 'HTMLCollection', 'CSSStyleDeclaration', 'HTMLInputElement',
    'HTMLSelectElement', 'HTMLOptionElement', 'HTMLTextAreaElement', 'HTMLAnchorElement', 'HTMLLabelElement', 'HTMLSlotElement',
    'MutationObserver', 'Event', 'Performance'];
  const GLOBALS = ['Math', 'JSON', 'Reflect', 'Proxy', 'getComputedStyle', 'getSelection', 'parseFloat', 'performance',
    'innerWidth', 'innerHeight', 'scrollX', 'scrollY', 'setTimeout', 'clearTimeout', 'requestAnimationFrame', 'NodeFilter'];
  const kept = [];
  const keep = (owner, keys) => { for (const key of keys) kept.push([owner, key, getOwnPropertyDescriptor(owner, key)]); };
  keep(window, [...CLASSES, ...GLOBALS]);
  for (const name of CLASSES) {
    keep(window[name].prototype, ownKeys(window[name].prototype));
    if (['Object', 'Array', 'String', 'Symbol', 'Promise'].includes(name)) keep(window[name], ownKeys(window[name]));
  }
  for (const one of [Math, JSON, Reflect, getPrototypeOf([][Symbol.iterator]())]) keep(one, ownKeys(one));
  const iterators = getPrototypeOf(getPrototypeOf([][Symbol.iterator]()));
  keep(iterators, ownKeys(iterators));
  const count = kept.length;
  const bare = [Object.prototype, Array.prototype].map((owner) => [owner, ownKeys(owner).length]);

  // Only syntax and what was taken above may be used from here on. Returns what `restore` takes.
  function mend() {
    const undo = { length: 0, __proto__: null };
    for (let i = 0; i < bare.length; i++) {
      const owner = bare[i][0], keys = ownKeys(owner);
      for (let j = 0; keys.length > bare[i][1] && j < keys.length; j++) {
        let known = false;
        for (let k = 0; k < count && !known; k++) known = kept[k][0] === owner && kept[k][1] === keys[j];
        if (known) continue;
        undo[undo.length++] = { __proto__: null, owner, key: keys[j], was: getOwnPropertyDescriptor(owner, keys[j]) };
        deleteProperty(owner, keys[j]);
      }
    }
    for (let i = 0; i < count; i++) {
      const owner = kept[i][0], key = kept[i][1], own = kept[i][2], now = getOwnPropertyDescriptor(owner, key);
      if (now && own && now.value === own.value && now.get === own.get) continue;
      if (!now && !own) continue;
      undo[undo.length++] = { __proto__: null, owner, key, was: now };
      if (own) defineProperty(owner, key, own);
      else deleteProperty(owner, key);
    }
    return undo;
  }

  function restore(undo) {
    for (let i = undo.length - 1; i >= 0; i--) {
      const { owner, key, was } = undo[i];
      if (was) defineProperty(owner, key, was);
      else deleteProperty(owner, key);
    }
  }
})();
