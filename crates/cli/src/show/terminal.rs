//! The drawing for a terminal.

use super::exchange::Exchange;
use super::model::{owners_text, times, Model, Part, Side};
use super::palette::{heat, unit_colour, Depth};
use super::raster::{slices, Cell, Raster};
use crate::layout::LayoutError;
use crate::text::bytes;

/// Most rows of cells in one picture.
const MAX_ROWS: usize = 24;
/// Most units that the list of parts names.
const MAX_PARTS: usize = 16;
/// Blanks between slices that stand side by side.
const GAP: usize = 3;

/// Draws the model, `width` characters wide.
pub fn draw(model: &Model, width: usize, depth: Depth) -> Result<String, LayoutError> {
    let mut text = String::new();
    for (i, side) in model.sides.iter().enumerate() {
        if i > 0 {
            text.push('\n');
        }
        let role = match (model.sides.len(), i) {
            (1, _) => "",
            (_, 0) => "from ",
            _ => "to ",
        };
        text += &heading(model, side, role, depth);
        text += &pictures(side, width, depth)?;
        text.push('\n');
        text += &parts(side, width, depth);
    }
    if let Some(exchange) = &model.exchange {
        text.push('\n');
        text += &traffic(exchange, width, depth);
    }
    Ok(text)
}

fn heading(model: &Model, side: &Side, role: &str, depth: Depth) -> String {
    let units = side.parts.len();
    let plural = if units == 1 { "" } else { "s" };
    let shape = times(model.dataset.shape());
    let size = bytes(model.dataset.len_bytes());
    let replicas = match side.mapping.replicas() {
        0 | 1 => String::new(),
        n => format!(", {n} replicas"),
    };
    format!(
        "{role}{}  {shape} {} ({size}) over {units} unit{plural}{replicas}\n",
        depth.bold(&side.text),
        model.dataset.elem()
    )
}

fn pictures(side: &Side, width: usize, depth: Depth) -> Result<String, LayoutError> {
    let shape = side.mapping.dataset().shape();
    let label_len = (side.parts.len() - 1).to_string().len();
    let cell = label_len + 2;
    let margin = shape.iter().rev().nth(1).map_or(0, |n| n.saturating_sub(1).to_string().len()) + 2;
    let several = shape.len() > 2;
    let room = if several { width.saturating_sub(GAP) / 2 } else { width };
    let max_cols = (room.saturating_sub(margin) / cell).max(1);
    let max_rows = if several { MAX_ROWS / 2 } else { MAX_ROWS };
    let slices = slices(&side.mapping, max_rows, max_cols)?;
    if slices.iter().all(|s| s.raster.cells.is_empty()) {
        return Ok("  no elements\n".into());
    }
    let each = margin + slices[0].raster.cols * cell;
    let beside = if several { ((width + GAP) / (each + GAP)).max(1) } else { 1 };
    // Rows of slices of equal length.
    let beside = slices.len().div_ceil(slices.len().div_ceil(beside));
    let mut text = String::new();
    for group in slices.chunks(beside) {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for slice in group {
            let mut lines = Vec::new();
            if several {
                let fixed: String = slice.fixed.iter().map(|i| format!("{i}, ")).collect();
                lines.push(format!("{:each$}", format!("{}[{fixed}:, :]", " ".repeat(margin))));
            }
            lines.extend(picture(&slice.raster, margin, cell, depth));
            rows.resize(lines.len(), Vec::new());
            rows.iter_mut().zip(lines).for_each(|(row, line)| row.push(line));
        }
        for row in rows {
            text += row.join(&" ".repeat(GAP)).trim_end_matches(' ');
            text.push('\n');
        }
    }
    let rasters = || slices.iter().map(|s| &s.raster);
    let mut notes = Vec::new();
    if let Some(zoomed) = rasters().find(|r| r.zoomed) {
        let last = |edges: &[u64]| edges.last().copied().unwrap_or(0);
        let span = match shape.len() {
            1 => format!("{}", last(&zoomed.col_edges)),
            _ => format!("{}×{}", last(&zoomed.row_edges), last(&zoomed.col_edges)),
        };
        notes.push(format!("the first {span} elements; it goes on like this"));
    }
    if let Some(coarse) = rasters().find(|r| !r.is_exact()) {
        let span = |edges: &[u64]| edges.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(1);
        let block = match shape.len() {
            1 => format!("{}", span(&coarse.col_edges)),
            _ => format!("{}×{}", span(&coarse.row_edges), span(&coarse.col_edges)),
        };
        notes.push(format!("a cell is up to {block} elements"));
    }
    if rasters().any(Raster::any_mixed) {
        notes.push("~ several units share the cell".into());
    }
    if rasters().any(|r| r.cells.iter().any(|c| c.owners.len() > 1)) {
        notes.push("+ other units hold it too".into());
    }
    if rasters().any(|r| r.cells.iter().any(|c| c.owners.is_empty())) {
        notes.push("· nobody holds it".into());
    }
    let mut line = String::new();
    for note in notes {
        if !line.is_empty() && margin + line.chars().count() + 2 + note.chars().count() > width {
            text += &format!("{}{}\n", " ".repeat(margin), depth.faint(&line));
            line.clear();
        }
        line += if line.is_empty() { "" } else { "; " };
        line += &note;
    }
    if !line.is_empty() {
        text += &format!("{}{}\n", " ".repeat(margin), depth.faint(&line));
    }
    Ok(text)
}

/// The lines of a picture, all of the same width on the screen.
fn picture(raster: &Raster, margin: usize, cell: usize, depth: Depth) -> Vec<String> {
    // Without colours every cell needs its number; with them, one for each region of a coarse picture.
    let labels = match depth == Depth::None || raster.is_exact() {
        true => vec![true; raster.cells.len()],
        false => raster.label_cells(),
    };
    let width = raster.cols * cell;
    let axis = format!("{}{:width$}", " ".repeat(margin), column_axis(raster, cell));
    let mut lines = vec![depth.faint(&axis)];
    for row in 0..raster.rows {
        let index = raster.row_edges[row].to_string();
        let axis = if margin > 2 { format!("{index:>w$} ", w = margin - 1) } else { " ".repeat(margin) };
        let mut line = depth.faint(&axis);
        for col in 0..raster.cols {
            let at = raster.cell(row, col);
            let label = label(at, labels[row * raster.cols + col]);
            let content = format!("{label:^cell$}");
            line += &match at.owners.first() {
                Some(&unit) => depth.paint(unit_colour(unit), &content),
                None => depth.faint(&content),
            };
        }
        lines.push(line);
    }
    lines
}

fn label(cell: &Cell, wanted: bool) -> String {
    let suffix = match (cell.mixed, cell.owners.len()) {
        (true, _) => "~",
        (_, 0 | 1) => "",
        _ => "+",
    };
    match cell.owners.first() {
        None => format!("·{suffix}"),
        Some(unit) if wanted => format!("{unit}{suffix}"),
        Some(_) if cell.mixed => "~".into(),
        Some(_) => String::new(),
    }
}

/// Indices above the columns, as many as have room.
fn column_axis(raster: &Raster, cell: usize) -> String {
    let mut axis = String::new();
    for col in 0..raster.cols {
        let index = raster.col_edges[col].to_string();
        let start = col * cell + (cell.saturating_sub(index.len())) / 2;
        let len = axis.chars().count();
        let every = raster.is_exact() || col % 4 == 0;
        if every && (col == 0 || start > len) && start + index.len() <= raster.cols * cell {
            axis += &" ".repeat(start.saturating_sub(len));
            axis += &index;
        }
    }
    axis
}

fn parts(side: &Side, width: usize, depth: Depth) -> String {
    let mut rows = Vec::new();
    for part in side.parts.iter().take(MAX_PARTS) {
        rows.push([
            part.unit.to_string(),
            times(&part.local_shape),
            bytes(part.local_bytes),
            boxes_text(part, width.saturating_sub(44).max(24)),
        ]);
    }
    rows.insert(0, ["unit", "local shape", "bytes", "owns"].map(String::from));
    let table = crate::text::table(&rows, &[true, true, true, false]);
    let mut text = String::new();
    for (i, line) in table.lines().enumerate() {
        match i {
            0 => text += &depth.faint(line),
            _ => {
                // The number of the unit wears its colour.
                let (unit, rest) = line.split_at(4.min(line.len()));
                text += &format!("{}{rest}", depth.paint(unit_colour(i as u64 - 1), unit));
            }
        }
        text.push('\n');
    }
    if side.parts.len() > MAX_PARTS {
        text += &format!("  … and {} more\n", side.parts.len() - MAX_PARTS);
    }
    text
}

/// As many of a part's boxes as fit.
fn boxes_text(part: &Part, room: usize) -> String {
    let mut text = String::new();
    for (i, bounds) in part.boxes.iter().enumerate() {
        let next = format!("[{}] ", bounds.describe());
        if i > 0 && text.len() + next.len() > room {
            let more = part.boxes.len() - i;
            let least = if part.boxes_cut { "more than " } else { "" };
            return format!("{text}and {least}{more} more");
        }
        text += &next;
    }
    if text.is_empty() {
        return "-".into();
    }
    text.trim_end().to_owned()
}

fn traffic(exchange: &Exchange, width: usize, depth: Depth) -> String {
    let (writers, readers) = (exchange.bytes.len(), exchange.bytes.first().map_or(0, Vec::len));
    let mut text = format!(
        "{}  {} in {} of {} pairs of units\n",
        depth.bold("traffic"),
        bytes(exchange.total()),
        exchange.pairs(),
        writers * readers
    );
    let most = exchange.max();
    let cell = 10;
    if readers * cell + 8 <= width && writers <= 32 {
        let header: String = (0..readers).map(|r| format!("{:>cell$}", format!("→ {r} "))).collect();
        text += &format!("      {}\n", depth.faint(&header));
        for (w, row) in exchange.bytes.iter().enumerate() {
            text += &depth.faint(&format!("{w:>4} →"));
            for &value in row {
                let content = if value == 0 { "·".into() } else { bytes(value) };
                let content = format!("{content:>w$} ", w = cell - 1);
                text += &match value {
                    0 => depth.faint(&content),
                    _ => depth.paint(heat(value as f64 / most as f64), &content),
                };
            }
            text.push('\n');
        }
    } else if let Some((w, r)) = position_of(exchange, most) {
        text += &format!("  the busiest pair: {} → {}, {}\n", w, r, bytes(most));
    }
    text += &format!("{}     {}\n", depth.bold("runs"), exchange.describe_runs());
    text
}

fn position_of(exchange: &Exchange, value: u64) -> Option<(String, String)> {
    let row = exchange.bytes.iter().position(|row| row.contains(&value))?;
    let col = exchange.bytes[row].iter().position(|&v| v == value)?;
    Some((owners_text(&[row as u64]), owners_text(&[col as u64])))
}
