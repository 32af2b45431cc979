import 'bootstrap';
import 'bootstrap/dist/css/bootstrap.css';
import { body, state } from './page.js';

const find = body(`<div class="p-3">
  <div class=btn-group role=group aria-label=Kind>${['A', 'B', 'C'].map((name) => `
    <input type=radio class=btn-check name=kind id=kind${name} value=${name} autocomplete=off>
    <label class="btn btn-outline-primary" for=kind${name}>Radio ${name}</label>`).join('')}</div>
  <div class="dropdown mt-3"><button class="btn btn-secondary dropdown-toggle" data-bs-toggle=dropdown aria-expanded=false>More</button>
    <ul class=dropdown-menu><li><a class=dropdown-item href="#copy">Copy</a></li><li><a class=dropdown-item href="#archive">Archive</a></li></ul></div>
  </div>`);
find('.btn-group').addEventListener('change', (event) => { state.kind = event.target.value; });
find('.dropdown-menu').addEventListener('click', (event) => { state.item = event.target.textContent; });
