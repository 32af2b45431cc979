import slider from 'nouislider';
import 'nouislider/dist/nouislider.css';
import { body, state } from './page.js';

const find = body('<div style="padding: 40px; width: 300px"><p>Volume</p><div id=volume></div></div>');
slider.create(find('#volume'), { start: 20, step: 1, range: { min: 0, max: 100 }, handleAttributes: [{ 'aria-label': 'Volume' }] });
find('#volume').noUiSlider.on('change', ([value]) => { state.volume = Math.round(value); });
