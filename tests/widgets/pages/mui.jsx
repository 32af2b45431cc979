import { useState } from 'react';
import { Autocomplete, FormControl, InputLabel, MenuItem, Rating, Select, Slider, Stack, TextField, Typography } from '@mui/material';
import { AdapterDayjs } from '@mui/x-date-pickers/AdapterDayjs';
import { DatePicker } from '@mui/x-date-pickers/DatePicker';
import { LocalizationProvider } from '@mui/x-date-pickers/LocalizationProvider';
import { show } from './react.js';
import { state } from './page.js';

const films = ['The Godfather', 'The Godfather: Part II', 'Pulp Fiction', 'Fight Club'];

function Age() {
  const [age, setAge] = useState('');
  return (
    <FormControl fullWidth>
      <InputLabel id="age-label">Age</InputLabel>
      <Select labelId="age-label" id="age" label="Age" value={age} onChange={(event) => { setAge(event.target.value); state.age = event.target.value; }}>
        <MenuItem value={10}>Ten</MenuItem>
        <MenuItem value={20}>Twenty</MenuItem>
        <MenuItem value={30}>Thirty</MenuItem>
      </Select>
    </FormControl>
  );
}

show(() => (
  <LocalizationProvider dateAdapter={AdapterDayjs}>
    <Stack spacing={3} sx={{ width: 400, padding: 3 }}>
      <Age />
      <Autocomplete options={films} onChange={(_, film) => { state.film = film; }} renderInput={(params) => <TextField {...params} label="Film" />} />
      <Typography id="volume">Volume</Typography>
      <Slider aria-labelledby="volume" defaultValue={20} onChange={(_, value) => { state.volume = value; }} />
      <Typography component="legend">Rating</Typography>
      <Rating name="rating" onChange={(_, value) => { state.rating = value; }} />
      <DatePicker label="Day" onChange={(day) => { state.day = day && day.isValid() ? day.format('YYYY-MM-DD') : ''; }} />
    </Stack>
  </LocalizationProvider>
));
