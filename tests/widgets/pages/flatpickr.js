import flatpickr from 'flatpickr';
import 'flatpickr/dist/flatpickr.css';
import { body, state } from './page.js';

const find = body('<p><label for=day>Day</label> <input id=day placeholder="Choose a day"></p>');
flatpickr(find('#day'), { defaultDate: '2026-11-10', onChange: (_, text) => { state.day = text; } });
