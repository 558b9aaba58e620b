//! The look of tables on stdout.

use comfy_table::{CellAlignment, Table, TableComponent, presets};

/// A table without rows: a rule under the heading, nothing else drawn.
pub fn plain() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    table
}

/// Aligns `columns` columns at the right, from number `first` on.
pub fn align_right(table: &mut Table, first: usize, columns: usize) {
    for column in table.column_iter_mut().skip(first).take(columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
