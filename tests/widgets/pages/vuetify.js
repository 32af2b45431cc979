import { createApp, h } from 'vue';
import { createVuetify } from 'vuetify';
import { VApp, VMain, VSelect } from 'vuetify/components';
import 'vuetify/styles';
import { body, state } from './page.js';

createApp({
  render: () => h(VApp, null, () => h(VMain, { style: 'padding: 20px; width: 400px' }, () => [
    h(VSelect, { label: 'State', items: ['California', 'Colorado', 'Florida', 'Georgia'], 'onUpdate:modelValue': (one) => { state.state = one; } }),
  ])),
}).use(createVuetify()).mount(body('<main></main>')('main'));
