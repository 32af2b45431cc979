import AirDatepicker from 'air-datepicker';
import english from 'air-datepicker/locale/en.js';
import 'air-datepicker/air-datepicker.css';
import { body, state } from './page.js';

const find = body('<p><label for=day>Day</label> <input id=day placeholder="Choose a day" readonly></p>');
new AirDatepicker(find('#day'), {
  locale: english.default || english,
  startDate: new Date(2026, 10, 10),
  dateFormat: 'yyyy-MM-dd',
  onSelect: ({ formattedDate }) => { state.day = formattedDate; },
});
