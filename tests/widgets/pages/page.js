// The page of a library: its widgets below labels, and `state`, which holds what the application was told.
export const state = (window.state = {});

export function body(html) {
  const root = document.createElement('div');
  root.innerHTML = html;
  document.body.append(root);
  return (selector) => root.querySelector(selector);
}

export const countries = Array.from({ length: 60 }, (_, n) => `Country ${n + 1}`);

// Reads uploaded files the way a form does.
export const names = (files) => Array.from(files, (file) => file.name).join(',');
