import Sortable from 'sortablejs';
import { body, state } from './page.js';

const find = body(`
  <style>.list { width: 160px; min-height: 120px; border: 1px solid; float: left; margin: 10px; padding: 5px; }
    .list li { list-style: none; padding: 6px; border: 1px solid #999; cursor: move; }</style>
  <ul class=list id=todo aria-label="To do"><li>Write</li><li>Read</li></ul>
  <ul class=list id=done aria-label=Done><li>Sleep</li></ul>`);
const onSort = () => { state.done = Array.from(find('#done').children, (one) => one.textContent).sort().join(','); };
for (const id of ['todo', 'done']) new Sortable(find(`#${id}`), { group: 'tasks', onSort });
