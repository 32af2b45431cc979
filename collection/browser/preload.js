// Runs before a page's own scripts and records what cannot be found out later: closed shadow roots, elements with
// mouse listeners, finished requests, and the original built-ins. Pages behave as without it.
(() => {
  const KEY = 'rmsweb.preload';  // Not a symbol: pages may replace Symbol.for.
  if (window[KEY]) return;
  const notes = { closedRoots: new WeakMap(), clicks: new WeakSet(), presses: new WeakSet(), restoreBuiltins, undoRestore };
  // Finished requests, and those that settle.js has waited for in vain.
  notes.requests = { finished: { __proto__: null }, timedOut: { __proto__: null } };
  Object.defineProperty(window, KEY, { value: notes });

  // The browser's own list of requests is short, and the page may clear it. If the page has broken the observer,
  // nothing is recorded.
  if (window === top) {
    let room = 10000;
    const { finished } = notes.requests;
    new PerformanceObserver((list) => {
      try {
        const entries = list.getEntries();
        for (let i = 0; i < entries.length && room-- > 0; i++) finished[entries[i].name] = true;
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

  // Our scripts share the page's global objects. While they run, built-ins that the page has replaced are
  // restored; afterwards the page gets its own versions back.
  const { getOwnPropertyDescriptor, getPrototypeOf } = Object;
  const { defineProperty, deleteProperty, ownKeys } = Reflect;
  const CLASSES = ['Object', 'Array', 'String', 'Number', 'Function', 'Symbol', 'Promise', 'RegExp', 'Set', 'Map', 'WeakMap',
    'WeakSet', 'EventTarget', 'Node', 'Element', 'HTMLElement', 'Document', 'DocumentFragment', 'ShadowRoot', 'CharacterData',
    'Range', 'DOMRect', 'DOMRectReadOnly', 'NodeList', 'HTMLCollection', 'CSSStyleDeclaration', 'HTMLInputElement',
    'HTMLSelectElement', 'HTMLOptionElement', 'HTMLTextAreaElement', 'HTMLAnchorElement', 'HTMLLabelElement', 'HTMLSlotElement',
    'MutationObserver', 'Event', 'Performance'];
  const GLOBALS = ['Math', 'JSON', 'Reflect', 'Proxy', 'getComputedStyle', 'getSelection', 'parseFloat', 'performance',
    'innerWidth', 'innerHeight', 'scrollX', 'scrollY', 'setTimeout', 'clearTimeout', 'requestAnimationFrame', 'NodeFilter'];
  const originals = [];
  const record = (owner, keys) => { for (const key of keys) originals.push([owner, key, getOwnPropertyDescriptor(owner, key)]); };
  record(window, [...CLASSES, ...GLOBALS]);
  for (const name of CLASSES) {
    record(window[name].prototype, ownKeys(window[name].prototype));
    if (['Object', 'Array', 'String', 'Symbol', 'Promise'].includes(name)) record(window[name], ownKeys(window[name]));
  }
  for (const one of [Math, JSON, Reflect, getPrototypeOf([][Symbol.iterator]())]) record(one, ownKeys(one));
  const iterators = getPrototypeOf(getPrototypeOf([][Symbol.iterator]()));
  record(iterators, ownKeys(iterators));
  const count = originals.length;
  const extensible = [Object.prototype, Array.prototype].map((owner) => [owner, ownKeys(owner).length]);

  // From here on only syntax and the functions taken above may be used: all others may be the page's.
  // Restores the built-ins; returns the argument of `undoRestore`.
  function restoreBuiltins() {
    const undo = { length: 0, __proto__: null };
    for (let i = 0; i < extensible.length; i++) {
      const owner = extensible[i][0], keys = ownKeys(owner);
      for (let j = 0; keys.length > extensible[i][1] && j < keys.length; j++) {
        let known = false;
        for (let k = 0; k < count && !known; k++) known = originals[k][0] === owner && originals[k][1] === keys[j];
        if (known) continue;
        undo[undo.length++] = { __proto__: null, owner, key: keys[j], was: getOwnPropertyDescriptor(owner, keys[j]) };
        deleteProperty(owner, keys[j]);
      }
    }
    for (let i = 0; i < count; i++) {
      const owner = originals[i][0], key = originals[i][1], own = originals[i][2], now = getOwnPropertyDescriptor(owner, key);
      if (now && own && now.value === own.value && now.get === own.get) continue;
      if (!now && !own) continue;
      undo[undo.length++] = { __proto__: null, owner, key, was: now };
      if (own) defineProperty(owner, key, own);
      else deleteProperty(owner, key);
    }
    return undo;
  }

  function undoRestore(undo) {
    for (let i = undo.length - 1; i >= 0; i--) {
      const { owner, key, was } = undo[i];
      if (was) defineProperty(owner, key, was);
      else deleteProperty(owner, key);
    }
  }
})();
