// The state and the helpers of our scripts in one document. They live in an isolated world: it has the page's nodes, but
// its own global object and built-ins, so that neither side sees or changes what the other has defined.
(() => {
  if (Object.hasOwn(globalThis, 'rmsweb')) return;
  // Elements that may host a shadow tree, besides custom ones.
  const HOSTS = new Set(['ARTICLE', 'ASIDE', 'BLOCKQUOTE', 'BODY', 'DIV', 'FOOTER', 'H1', 'H2', 'H3', 'H4', 'H5', 'H6', 'HEADER',
    'MAIN', 'NAV', 'P', 'SECTION', 'SPAN']);
  const MAX_SUSPECTS = 300;
  const closedRoots = new WeakMap(), judged = new WeakMap(), listening = new WeakMap();
  let suspects = [], found = [], pending = null;
  // Fields of a form shadow its properties, so prototype getters are used.
  const getter = (name) => {
    const { get } = Object.getOwnPropertyDescriptor(Element.prototype, name);
    return (el) => get.call(el);
  };
  const nameOf = getter('localName'), openRootOf = getter('shadowRoot');
  const treeOf = (node) => Node.prototype.getRootNode.call(node);

  // Finished requests, and those that settle.js has waited for in vain. The browser's own list of requests is short,
  // and the page may clear it.
  const requests = { finished: { __proto__: null }, timedOut: { __proto__: null } };
  if (window === top) {
    let room = 10000;
    new PerformanceObserver((list) => {
      for (const { name } of list.getEntries()) if (room-- > 0) requests.finished[name] = true;
    }).observe({ type: 'resource', buffered: true });
  }

  // An element without light content, or whose content is not rendered although it is visible itself. Its size says
  // when to look again.
  function suspect(el) {
    const custom = nameOf(el).includes('-'), child = el.firstElementChild;
    if (!custom && (!HOSTS.has(el.tagName) || (child ? child.checkVisibility() : el.firstChild))) return;
    const key = `${el.offsetWidth}x${el.offsetHeight}`;
    if (judged.get(el) === key || suspects.length >= MAX_SUSPECTS) return;
    judged.set(el, key);
    suspects.push(el);
  }

  // Documents without an origin have none.
  function storageOf(kind) {
    try {
      const storage = window[kind];
      return Array.from({ length: storage.length }, (_, i) => [storage.key(i), storage.getItem(storage.key(i))]);
    } catch { return []; }
  }
  const storages = () => ['localStorage', 'sessionStorage'].map(storageOf);

  // Answers are sent as JSON; elements in them become references.
  function refer(value) {
    if (value === null || typeof value !== 'object') return value;
    if (value.nodeType) return { node: found.push(value) - 1 };
    for (const key in value) if (typeof value[key] === 'object') value[key] = refer(value[key]);
    return value;
  }

  globalThis.rmsweb = {
    requests,
    storages,
    // As the page's own scripts found them.
    foundStorages: window === top ? storages() : null,
    // Of the last snapshot: its elements by number.
    elements: new Map(),
    // The shadow root of an element, also a closed one.
    rootOf(el) {
      const root = openRootOf(el) || closedRoots.get(el) || null;
      if (!root) suspect(el);
      return root;
    },
    // What has the focus in the shadow tree of an element.
    activeIn(el) {
      const root = this.rootOf(el);
      return root && root.activeElement;
    },
    // Where the content of a frame element is in the window, and the size of its pixels: a frame may be transformed.
    placeOf(frame) {
      const rect = frame.getBoundingClientRect();
      const scale = Math.abs(rect.width - frame.offsetWidth) < 1 ? 1 : rect.width / frame.offsetWidth;
      return [rect.left + scale * frame.clientLeft, rect.top + scale * frame.clientTop, scale];
    },
    isClosed: (el) => closedRoots.has(el),
    // Which mouse events the page listens for at an element: 1 for clicks, 2 for presses, 3 for both.
    listensTo: (el) => listening.get(el) || 0,
    learnListeners(kinds, ...nodes) {
      nodes.forEach((node, i) => {
        listening.set(node, kinds[i]);
        // From inside, a closed root can be seen.
        for (let root = treeOf(node); root.host; root = treeOf(root.host)) {
          if (!openRootOf(root.host)) closedRoots.set(root.host, root);
        }
      });
    },
    learnRoots(...pairs) {
      pending = null;
      for (let i = 0; i < pairs.length; i += 2) closedRoots.set(pairs[i], pairs[i + 1]);
    },
    // Before the next script, but not if this one runs again because of new roots.
    later(step) { pending = step; },
    suspects: () => suspects,
    found: () => found,
    // In one document alone, if that is given by its time of creation.
    async run(code, args, creation) {
      if (creation !== null && creation !== performance.timeOrigin) return '{"gone":true}';
      if (Array.from(args).some((one) => one && one.nodeType && !one.isConnected)) return '{"stale":true}';
      if (pending) pending();
      pending = null;
      suspects = [];
      found = [];
      let text = JSON.stringify({ value: refer((await code.apply(null, args)) ?? null) });
      // Half a surrogate pair, the only character that is written as \ud..., cannot be written as UTF-8.
      if (text.includes('\\ud')) text = text.replace(/\\(?:\\|ud[89a-f]..)/g, (one) => (one === '\\\\' ? one : '\ufffd'));
      return `${text.slice(0, -1)},"found":${found.length},"suspects":${suspects.length}}`;
    },
  };
})();
