import { createElement, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { body } from './page.js';

export function show(App) {
  createRoot(body('<main></main>')('main')).render(createElement(App));
}

export { useState };
