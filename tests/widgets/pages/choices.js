import Choices from 'choices.js';
import 'choices.js/public/assets/styles/choices.css';
import { body, countries, state } from './page.js';

const find = body(`<div style="width: 300px"><label for=country>Country</label>
  <select id=country><option value="">Choose</option>${countries.map((name) => `<option>${name}</option>`).join('')}</select></div>`);
new Choices(find('#country'), { searchResultLimit: 60 });
find('#country').addEventListener('change', (event) => { state.country = event.target.value; });
