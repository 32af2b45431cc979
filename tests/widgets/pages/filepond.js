import * as FilePond from 'filepond';
import 'filepond/dist/filepond.css';
import { body, state } from './page.js';

const find = body('<div style="padding: 20px; width: 400px"><input type=file id=file></div>');
FilePond.create(find('#file'), { onaddfile: (_, file) => { state.file = file.filename; } });
