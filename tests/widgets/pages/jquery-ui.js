import './jquery.js';
import $ from 'jquery';
import 'jquery-ui/dist/jquery-ui.js';
import 'jquery-ui/dist/themes/base/jquery-ui.css';
import { body, state } from './page.js';

const find = body(`
  <style>.list { width: 160px; min-height: 120px; border: 1px solid; float: left; margin: 10px; padding: 5px; }
    .list li { list-style: none; padding: 6px; border: 1px solid #999; cursor: move; }</style>
  <p><label id=volume-label>Volume</label></p><div id=volume style="width: 300px" aria-labelledby=volume-label></div>
  <p><label for=speed>Speed</label> <select id=speed><option>Slow</option><option selected>Medium</option><option>Fast</option></select></p>
  <fieldset id=sizes><legend>Size</legend>${['Small', 'Large'].map((name) => `<label for=${name}>${name}</label>
    <input type=radio name=size id=${name} value=${name}>`).join('')}</fieldset>
  <div style="overflow: auto"><ul class=list id=todo aria-label="To do"><li>Write</li><li>Read</li></ul>
  <ul class=list id=done aria-label=Done><li>Sleep</li></ul></div>`);
$(find('#volume')).slider({ change: (_, ui) => { state.volume = ui.value; } });
$(find('#speed')).selectmenu({ width: 200, change: (_, ui) => { state.speed = ui.item.value; } });
$(find('#sizes')).find('input').checkboxradio({ icon: false }).on('change', (event) => { state.size = event.target.value; });
$(find('.list')).add(find('#done')).sortable({ connectWith: '.list', update: () => {
  state.done = Array.from(find('#done').children, (one) => one.textContent).sort().join(',');
} });
