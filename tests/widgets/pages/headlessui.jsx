import { useState } from 'react';
import { Combobox, ComboboxButton, ComboboxInput, ComboboxOption, ComboboxOptions, Field, Label, Listbox, ListboxButton, ListboxOption, ListboxOptions } from '@headlessui/react';
import { show } from './react.js';
import { state } from './page.js';

const people = ['Durward Reynolds', 'Kenton Towne', 'Therese Wunsch', 'Benedict Kessler'];

function Assignee() {
  const [one, setOne] = useState(people[0]);
  return (
    <Field><Label>Assignee</Label>
      <Listbox value={one} onChange={(value) => { setOne(value); state.assignee = value; }}>
        <ListboxButton>{one}</ListboxButton>
        <ListboxOptions anchor="bottom" style={{ background: '#eee' }}>{people.map((name) => <ListboxOption key={name} value={name}>{name}</ListboxOption>)}</ListboxOptions>
      </Listbox>
    </Field>
  );
}

function Reviewer() {
  const [one, setOne] = useState(null);
  const [query, setQuery] = useState('');
  return (
    <Field><Label>Reviewer</Label>
      <Combobox value={one} onChange={(value) => { setOne(value); state.reviewer = value; }} onClose={() => setQuery('')}>
        <ComboboxInput displayValue={(name) => name || ''} onChange={(event) => setQuery(event.target.value)} />
        <ComboboxButton aria-label="Show people">v</ComboboxButton>
        <ComboboxOptions anchor="bottom" style={{ background: '#eee' }}>
          {people.filter((name) => name.toLowerCase().includes(query.toLowerCase())).map((name) => <ComboboxOption key={name} value={name}>{name}</ComboboxOption>)}
        </ComboboxOptions>
      </Combobox>
    </Field>
  );
}

show(() => <div style={{ padding: 20, display: 'grid', gap: 20, width: 300 }}><Assignee /><Reviewer /></div>);
