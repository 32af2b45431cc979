import Select from 'react-select';
import { show } from './react.js';
import { countries, state } from './page.js';

const options = countries.map((label, n) => ({ label, value: `c${n}` }));

show(() => (
  <div style={{ padding: 20, width: 300 }}>
    <label htmlFor="country">Country</label>
    <Select inputId="country" options={options} onChange={(one) => { state.country = one.label; }} />
  </div>
));
