import './jquery.js';
import $ from 'jquery';
import register from 'select2';
import 'select2/dist/css/select2.css';
import { body, countries, state } from './page.js';

if (!$.fn.select2) register(window, $);
const find = body(`
  <p><label for=country>Country</label><br><select id=country style="width: 300px"><option value="">Choose</option>
    ${countries.map((name) => `<option>${name}</option>`).join('')}</select></p>
  <p><label for=colours>Colours</label><br><select id=colours multiple style="width: 300px">
    <option>Red</option><option>Green</option><option>Blue</option></select></p>`);
$(find('#country')).select2().on('change', (event) => { state.country = event.target.value; });
$(find('#colours')).select2().on('change', () => { state.colours = $(find('#colours')).val().join(','); });
