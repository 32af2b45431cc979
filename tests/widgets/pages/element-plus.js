import { createApp, h, ref } from 'vue';
import ElementPlus, { ElDatePicker, ElForm, ElFormItem, ElOption, ElSelect } from 'element-plus';
import 'element-plus/dist/index.css';
import { body, state } from './page.js';

createApp({
  setup() {
    const zone = ref(''), day = ref('');
    return () => h(ElForm, { labelWidth: '100px', style: 'padding: 20px; width: 400px' }, () => [
      h(ElFormItem, { label: 'Zone' }, () => h(ElSelect, { modelValue: zone.value, 'onUpdate:modelValue': (one) => { zone.value = state.zone = one; } },
        () => ['North', 'East', 'South', 'West'].map((name) => h(ElOption, { key: name, label: name, value: name })))),
      h(ElFormItem, { label: 'Day' }, () => h(ElDatePicker, { placeholder: 'Pick a day', valueFormat: 'YYYY-MM-DD', modelValue: day.value,
        'onUpdate:modelValue': (one) => { day.value = state.day = one; } })),
    ]);
  },
}).use(ElementPlus).mount(body('<main></main>')('main'));
