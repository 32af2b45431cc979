import TomSelect from 'tom-select';
import 'tom-select/dist/css/tom-select.css';
import { body, state } from './page.js';

const find = body(`<div style="width: 300px"><label for=tags>Tags</label>
  <select id=tags multiple><option>Red</option><option>Green</option><option>Blue</option></select></div>`);
new TomSelect(find('#tags'), { onChange: (values) => { state.tags = values.join(','); } });
