import { Dropzone } from 'dropzone';
import 'dropzone/dist/dropzone.css';
import { body, state } from './page.js';

const find = body('<form class=dropzone id=files action="/upload"></form>');
Dropzone.autoDiscover = false;
new Dropzone(find('#files'), { url: '/upload', autoProcessQueue: false }).on('addedfile', (file) => { state.file = file.name; });
