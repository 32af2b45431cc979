// Runs before a page's own scripts: notes what cannot be asked for afterwards, namely closed shadow
// roots and which elements listen for the mouse. Nothing the page can see is changed in behaviour.
(() => {
  const KEY = Symbol.for('rmsweb.preload');
  if (window[KEY]) return;
  const notes = { closedRoots: new WeakMap(), clicks: new WeakSet(), presses: new WeakSet() };
  Object.defineProperty(window, KEY, { value: notes });

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
})();
