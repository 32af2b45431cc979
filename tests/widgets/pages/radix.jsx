import { Select, Slider } from 'radix-ui';
import { show } from './react.js';
import { state } from './page.js';

const fruit = ['Apple', 'Banana', 'Cherry', 'Damson'];

show(() => (
  <div style={{ padding: 20, width: 300 }}>
    <Select.Root onValueChange={(value) => { state.fruit = value; }}>
      <Select.Trigger aria-label="Fruit"><Select.Value placeholder="Choose a fruit" /></Select.Trigger>
      <Select.Portal><Select.Content style={{ background: '#eee' }}><Select.Viewport>
        {fruit.map((name) => <Select.Item key={name} value={name}><Select.ItemText>{name}</Select.ItemText></Select.Item>)}
      </Select.Viewport></Select.Content></Select.Portal>
    </Select.Root>
    <p>Volume</p>
    <Slider.Root defaultValue={[50]} onValueChange={([value]) => { state.volume = value; }}
      style={{ position: 'relative', display: 'flex', alignItems: 'center', width: 200, height: 20 }}>
      <Slider.Track style={{ background: '#999', position: 'relative', flexGrow: 1, height: 3 }}><Slider.Range style={{ position: 'absolute', background: '#333', height: '100%' }} /></Slider.Track>
      <Slider.Thumb aria-label="Volume" style={{ display: 'block', width: 20, height: 20, background: '#333', borderRadius: 10 }} />
    </Slider.Root>
  </div>
));
