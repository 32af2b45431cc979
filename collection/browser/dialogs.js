// As browsers let people stop a page that keeps asking: after a few dialogs a document gets no more of
// them, and its calls answer as if each had been dismissed.
(() => {
  let left = 5;
  for (const [name, dismissed] of [['alert', undefined], ['confirm', false], ['prompt', null]]) {
    const ask = window[name];
    window[name] = function (...given) {
      return left-- > 0 ? ask.apply(this, given) : dismissed;
    };
  }
  // There is no printer, and nobody to choose one.
  window.print = function () {};
})();
