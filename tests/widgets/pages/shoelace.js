import '@shoelace-style/shoelace/dist/themes/light.css';
import '@shoelace-style/shoelace/dist/components/select/select.js';
import '@shoelace-style/shoelace/dist/components/option/option.js';
import '@shoelace-style/shoelace/dist/components/range/range.js';
import { body, state } from './page.js';

const find = body(`<div style="padding: 20px; width: 300px">
  <sl-select label=Meal id=meal>${['Breakfast', 'Lunch', 'Dinner'].map((name) => `<sl-option value=${name}>${name}</sl-option>`).join('')}</sl-select>
  <sl-range label=Volume id=volume min=0 max=100 value=20></sl-range></div>`);
find('#meal').addEventListener('sl-change', (event) => { state.meal = event.target.value; });
find('#volume').addEventListener('sl-change', (event) => { state.volume = event.target.value; });
