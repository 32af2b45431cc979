import { AllCommunityModule, ModuleRegistry, createGrid } from 'ag-grid-community';
import { body, state } from './page.js';

ModuleRegistry.registerModules([AllCommunityModule]);
const find = body('<div id=grid style="height: 300px; width: 500px"></div>');
createGrid(find('#grid'), {
  columnDefs: [{ field: 'name', headerName: 'Name' }, { field: 'price', headerName: 'Price', editable: true }],
  rowData: [{ name: 'Mug', price: 5 }, { name: 'Plate', price: 7 }, { name: 'Bowl', price: 6 }],
  onCellValueChanged: (event) => { state.price = `${event.data.name} ${event.newValue}`; },
});
