import { Button, Cascader, DatePicker, Form, Radio, Select, Slider, Table, Upload } from 'antd';
import { show } from './react.js';
import { countries, state } from './page.js';

const options = countries.map((label, n) => ({ label, value: `c${n}` }));
const regions = [
  { value: 'zhejiang', label: 'Zhejiang', children: [{ value: 'hangzhou', label: 'Hangzhou' }, { value: 'ningbo', label: 'Ningbo' }] },
  { value: 'jiangsu', label: 'Jiangsu', children: [{ value: 'nanjing', label: 'Nanjing' }] },
];
const people = ['Alice', 'Bob', 'Carol', 'Dave'].map((name, key) => ({ key, name, age: 30 + key }));
const columns = [{ title: 'Name', dataIndex: 'name' }, { title: 'Age', dataIndex: 'age' }];

show(() => (
  <Form layout="vertical" style={{ width: 500 }}>
    <Form.Item label="Country" name="country"><Select options={options} onChange={(one) => { state.country = one; }} /></Form.Item>
    <Form.Item label="Birthplace" name="birthplace">
      <Select showSearch={{ optionFilterProp: 'label' }} options={options} onChange={(one) => { state.birthplace = one; }} />
    </Form.Item>
    <Form.Item label="Day" name="day"><DatePicker onChange={(_, text) => { state.day = text; }} /></Form.Item>
    <Form.Item label="Size" name="size">
      <Radio.Group optionType="button" options={['Small', 'Medium', 'Large']} onChange={(event) => { state.size = event.target.value; }} />
    </Form.Item>
    <Form.Item label="Volume" name="volume"><Slider onChange={(one) => { state.volume = one; }} /></Form.Item>
    <Form.Item label="Region" name="region">
      <Cascader options={regions} onChange={(path) => { state.region = path.join('/'); }} />
    </Form.Item>
    <Upload beforeUpload={(file) => { state.file = file.name; return false; }}><Button>Choose a file</Button></Upload>
    <Table size="small" pagination={false} columns={columns} dataSource={people}
      rowSelection={{ onChange: (_, rows) => { state.rows = rows.map((row) => row.name).join(','); } }} />
  </Form>
));
