//! The drawing as SVG: what each unit owns to scale, and the traffic as a heat map.

use super::exchange::Exchange;
use super::model::{owners_text, times, Bounds, Model, Side};
use super::palette::{heat, unit_colour, Rgb};
use super::raster::{slices, Slice};
use crate::layout::LayoutError;
use crate::svg::{frame, text, FAINT, INK};
use crate::text::bytes;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Longest side of a picture.
const EXTENT: f64 = 380.0;
/// Shortest, for arrays that are long and thin.
const THIN: f64 = 64.0;
const MARGIN: f64 = 36.0;
const LEGEND: f64 = 190.0;
/// Above this many boxes the picture is made of cells instead.
const MAX_RECTANGLES: usize = 6000;
const MAX_LEGEND: usize = 16;

/// A piece of the page, with the room that it takes.
struct Block {
    body: String,
    width: f64,
    height: f64,
}

/// A rectangle to be filled, in indices of the plane.
struct Area {
    top: u64,
    bottom: u64,
    left: u64,
    right: u64,
    owners: Vec<u64>,
}

/// Draws the model.
pub fn draw(model: &Model) -> Result<String, LayoutError> {
    let mut blocks = Vec::new();
    let mut patterns = BTreeMap::new();
    for (i, side) in model.sides.iter().enumerate() {
        let role = match (model.sides.len(), i) {
            (1, _) => "",
            (_, 0) => "from",
            _ => "to",
        };
        blocks.push(panel(side, role, &mut patterns)?);
    }
    if let Some(exchange) = &model.exchange {
        blocks.push(matrix(exchange));
    }
    let gap = 44.0;
    let width = blocks.iter().map(|b| b.width).sum::<f64>() + gap * (blocks.len() - 1) as f64 + 2.0 * MARGIN;
    let height = blocks.iter().map(|b| b.height).fold(0.0, f64::max) + 2.0 * MARGIN + 44.0;
    let mut page = String::new();
    let title = format!(
        "{} {}, {}",
        times(model.dataset.shape()),
        model.dataset.elem(),
        bytes(model.dataset.len_bytes())
    );
    page += &text(MARGIN, MARGIN + 6.0, 17.0, INK, "start", true, &title);
    let mut x = MARGIN;
    for block in &blocks {
        let _ = writeln!(page, r#"<g transform="translate({x:.1} {:.1})">"#, MARGIN + 44.0);
        page += &block.body;
        page += "</g>\n";
        x += block.width + gap;
    }
    let defs: String = patterns.into_values().collect();
    Ok(frame(&title, width, height, &defs, &page))
}

/// One layout: title, picture or pictures, legend.
fn panel(side: &Side, role: &str, patterns: &mut BTreeMap<Vec<u64>, String>) -> Result<Block, LayoutError> {
    let mut body = String::new();
    let title = if role.is_empty() { side.text.clone() } else { format!("{role}  {}", side.text) };
    body += &text(0.0, 0.0, 14.0, INK, "start", true, &shorten(&title, 52));
    let shape = side.mapping.dataset().shape();
    let slices = slices(&side.mapping, 64, 64)?;
    let last = |edges: &[u64]| edges.last().copied().unwrap_or(0);
    let (rows, cols) =
        slices.first().map_or((0, 0), |s| (last(&s.raster.row_edges), last(&s.raster.col_edges)));
    let units = side.parts.len();
    let replicas = match side.mapping.replicas() {
        0 | 1 => String::new(),
        n => format!(", {n} replicas"),
    };
    let plural = if units == 1 { "" } else { "s" };
    let zoomed = match slices.iter().any(|s| s.raster.zoomed) {
        true => format!("; the first {rows}×{cols} elements; it goes on like this"),
        false => String::new(),
    };
    let line = format!("{units} unit{plural}{replicas}{zoomed}");
    body += &text(0.0, 18.0, 12.0, FAINT, "start", false, &line);
    let axis = 34.0;
    let several = shape.len() > 2;
    let scale = if several { 0.46 } else { 1.0 };
    let (w, h) = fit(rows, cols, EXTENT * scale);
    let mut y = 44.0;
    let mut right = 0.0f64;
    for (k, slice) in slices.iter().enumerate() {
        let x = axis + (k % 2) as f64 * (w + 30.0 + axis);
        if k > 0 && k % 2 == 0 {
            y += h + 52.0;
        }
        if several {
            let fixed: String = slice.fixed.iter().map(|i| format!("{i}, ")).collect();
            body += &text(x, y - 2.0, 11.0, FAINT, "start", false, &format!("[{fixed}:, :]"));
        }
        let _ = writeln!(body, r#"<g transform="translate({x:.1} {:.1})">"#, y + 14.0);
        body += &plane(side, slice, (rows, cols), (w, h), patterns);
        body += "</g>\n";
        right = right.max(x + w);
    }
    if rows == 0 || cols == 0 || shape.contains(&0) {
        body += &text(0.0, y + 20.0, 12.0, FAINT, "start", false, "no elements");
    }
    let x = right + 26.0;
    let legend = legend(side, x, 58.0);
    let height = (y + 14.0 + h).max(58.0 + legend.height);
    body += &legend.body;
    Ok(Block { body, width: x + LEGEND, height })
}

/// The pixels of a picture: in proportion, though a thin array stays visible.
fn fit(rows: u64, cols: u64, extent: f64) -> (f64, f64) {
    let (rows, cols) = (rows.max(1) as f64, cols.max(1) as f64);
    let scale = extent / rows.max(cols);
    ((cols * scale).max(THIN.min(extent)), (rows * scale).max(THIN.min(extent)))
}

fn plane(
    side: &Side,
    slice: &Slice,
    (rows, cols): (u64, u64),
    (w, h): (f64, f64),
    patterns: &mut BTreeMap<Vec<u64>, String>,
) -> String {
    let mut body = String::new();
    let clip = format!(r##"<rect width="{w:.1}" height="{h:.1}" rx="3" fill="#f1f3f6"/>"##);
    body += &clip;
    let (at_x, at_y) = (|c: u64| c as f64 / cols as f64 * w, |r: u64| r as f64 / rows as f64 * h);
    let areas = areas(side, slice);
    let lines = areas.len() <= 1200;
    for area in &areas {
        let (x, y) = (at_x(area.left), at_y(area.top));
        let (aw, ah) = (at_x(area.right) - x, at_y(area.bottom) - y);
        let fill = fill(&area.owners, patterns);
        let stroke = if lines { r##" stroke="#ffffff" stroke-width="1""## } else { "" };
        let span = format!("[{}:{}, {}:{}]", area.top, area.bottom, area.left, area.right);
        let _ = writeln!(
            body,
            r#"<rect x="{x:.2}" y="{y:.2}" width="{aw:.2}" height="{ah:.2}" fill="{fill}"{stroke}><title>{} {span}</title></rect>"#,
            owners_text(&area.owners)
        );
    }
    if rows <= 32 && cols <= 32 {
        body += &grid_lines(rows, cols, w, h);
    }
    for area in &areas {
        let (x, y) = (at_x(area.left), at_y(area.top));
        let (aw, ah) = (at_x(area.right) - x, at_y(area.bottom) - y);
        let label = match area.owners[..] {
            [] => continue,
            [one] => one.to_string(),
            [a, b] => format!("{a} {b}"),
            [first, ..] => format!("{first}+"),
        };
        let size = (ah * 0.62).min(aw / label.len() as f64 * 1.25).min(22.0);
        if size >= 7.0 && areas.len() <= 600 {
            let ink = unit_colour(area.owners[0]).ink().hex();
            body += &text(x + aw / 2.0, y + ah / 2.0 + size * 0.35, size, &ink, "middle", true, &label);
        }
    }
    body + &axes(rows, cols, w, h)
}

fn grid_lines(rows: u64, cols: u64, w: f64, h: f64) -> String {
    let mut path = String::new();
    for c in 1..cols {
        let _ = write!(path, "M{:.2} 0V{h:.2}", c as f64 / cols as f64 * w);
    }
    for r in 1..rows {
        let _ = write!(path, "M0 {:.2}H{w:.2}", r as f64 / rows as f64 * h);
    }
    format!("<path d=\"{path}\" stroke=\"#ffffff\" stroke-opacity=\"0.38\" stroke-width=\"0.7\"/>\n")
}

/// Indices at the edges: all of them where there is room, else at round places.
fn axes(rows: u64, cols: u64, w: f64, h: f64) -> String {
    let ticks = |len: u64, pixels: f64, room: f64| -> Vec<u64> {
        let max = (pixels / room).floor().max(1.0) as u64;
        let raw = len.div_ceil(max).max(1);
        let mut step = 1u64;
        'up: loop {
            for factor in [1, 2, 4, 5, 8] {
                if step.saturating_mul(factor) >= raw {
                    step = step.saturating_mul(factor);
                    break 'up;
                }
            }
            step = step.saturating_mul(10);
        }
        // Powers of two read better on arrays that are made of them.
        if len.is_power_of_two() && len > 16 {
            step = raw.next_power_of_two();
        }
        (0..len).step_by(usize::try_from(step).unwrap_or(usize::MAX)).collect()
    };
    let mut body = String::new();
    let half = |len: u64, pixels: f64| if len <= 32 { pixels / len as f64 / 2.0 } else { 0.0 };
    for c in ticks(cols, w, 34.0) {
        let x = c as f64 / cols as f64 * w + half(cols, w);
        let anchor = if cols <= 32 { "middle" } else { "start" };
        body += &text(x, -5.0, 9.5, FAINT, anchor, false, &c.to_string());
    }
    if rows > 1 {
        for r in ticks(rows, h, 18.0) {
            let y = r as f64 / rows as f64 * h + half(rows, h) + if rows <= 32 { 3.2 } else { 8.0 };
            body += &text(-6.0, y, 9.5, FAINT, "end", false, &r.to_string());
        }
    }
    body
}

/// What to fill: the true boxes, or the cells of the raster where the boxes are too many.
fn areas(side: &Side, slice: &Slice) -> Vec<Area> {
    let few = side.parts.iter().map(|p| p.boxes.len()).sum::<usize>() <= MAX_RECTANGLES;
    if few && !slice.raster.zoomed && side.parts.iter().all(|p| !p.boxes_cut) {
        return boxes_of(side, &slice.fixed);
    }
    let raster = &slice.raster;
    let mut areas: Vec<Area> = Vec::new();
    for row in 0..raster.rows {
        for col in 0..raster.cols {
            let owners = &raster.cell(row, col).owners;
            let (top, bottom) = (raster.row_edges[row], raster.row_edges[row + 1]);
            let (left, right) = (raster.col_edges[col], raster.col_edges[col + 1]);
            match areas.last_mut() {
                // Neighbours in a row join.
                Some(last) if last.top == top && last.right == left && last.owners == *owners => {
                    last.right = right;
                }
                _ => areas.push(Area { top, bottom, left, right, owners: owners.clone() }),
            }
        }
    }
    areas
}

fn boxes_of(side: &Side, fixed: &[u64]) -> Vec<Area> {
    let mut owners: BTreeMap<[u64; 4], Vec<u64>> = BTreeMap::new();
    for part in &side.parts {
        for Bounds { lo, hi } in &part.boxes {
            if !fixed.iter().enumerate().all(|(k, &i)| lo[k] <= i && i < hi[k]) {
                continue;
            }
            let plane = match lo.len() - fixed.len() {
                0 => [0, 1, 0, 1],
                1 => [0, 1, lo[fixed.len()], hi[fixed.len()]],
                _ => [lo[fixed.len()], hi[fixed.len()], lo[fixed.len() + 1], hi[fixed.len() + 1]],
            };
            let units = owners.entry(plane).or_default();
            if units.last() != Some(&part.unit) {
                units.push(part.unit);
            }
        }
    }
    owners
        .into_iter()
        .map(|([top, bottom, left, right], owners)| Area { top, bottom, left, right, owners })
        .collect()
}

/// A colour, or stripes of several for replicas; their pattern is added to the page once.
fn fill(owners: &[u64], patterns: &mut BTreeMap<Vec<u64>, String>) -> String {
    match owners {
        [] => "#f1f3f6".into(),
        [one] => unit_colour(*one).hex(),
        many => {
            let shown: Vec<u64> = many.iter().copied().take(4).collect();
            let name = shown.iter().map(u64::to_string).collect::<Vec<_>>().join("-");
            let band = 9.0;
            let size = band * shown.len() as f64;
            patterns.entry(shown.clone()).or_insert_with(|| {
                let mut pattern = format!(
                    r#"<pattern id="units-{name}" width="{size}" height="{size}" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">"#
                );
                for (i, &unit) in shown.iter().enumerate() {
                    let x = i as f64 * band;
                    let colour = unit_colour(unit).hex();
                    let _ = write!(
                        pattern,
                        r#"<rect x="{x}" width="{band}" height="{size}" fill="{colour}"/>"#
                    );
                }
                pattern + "</pattern>"
            });
            format!("url(#units-{name})")
        }
    }
}

fn legend(side: &Side, x: f64, y: f64) -> Block {
    let mut body = String::new();
    let count = side.parts.len().min(MAX_LEGEND);
    for (i, part) in side.parts.iter().take(count).enumerate() {
        let y = y + i as f64 * 23.0;
        body += &chip(x, y, part.unit);
        let label = format!("{} · {}", times(&part.local_shape), bytes(part.local_bytes));
        body += &text(x + 36.0, y + 12.5, 11.5, INK, "start", false, &shorten(&label, 26));
    }
    let more = side.parts.len() - count;
    if more > 0 {
        let y = y + count as f64 * 23.0 + 12.0;
        body += &text(x + 36.0, y, 11.5, FAINT, "start", false, &format!("and {more} more"));
    }
    Block { body, width: LEGEND, height: count as f64 * 23.0 + if more > 0 { 20.0 } else { 0.0 } }
}

/// A small rounded tag with the number of a unit on its colour.
fn chip(x: f64, y: f64, unit: u64) -> String {
    let colour = unit_colour(unit);
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"28\" height=\"17\" rx=\"6\" fill=\"{}\"/>\n{}",
        colour.hex(),
        text(x + 14.0, y + 12.3, 10.5, &colour.ink().hex(), "middle", true, &unit.to_string())
    )
}

/// The traffic, one cell for each pair of units.
fn matrix(exchange: &Exchange) -> Block {
    let (rows, cols) = (exchange.bytes.len(), exchange.bytes.first().map_or(0, Vec::len));
    let most = exchange.max().max(1) as f64;
    let cell_w = (EXTENT / cols.max(1) as f64).clamp(3.0, 72.0);
    let cell_h = (EXTENT / rows.max(1) as f64).clamp(3.0, 44.0);
    let (w, h) = (cell_w * cols as f64, cell_h * rows as f64);
    let (left, top) = (52.0, 80.0);
    let mut body = text(0.0, 0.0, 14.0, INK, "start", true, "traffic");
    let pairs =
        format!("{} in {} of {} pairs of units", bytes(exchange.total()), exchange.pairs(), rows * cols);
    body += &text(0.0, 18.0, 12.0, FAINT, "start", false, &pairs);
    body += &text(left, 46.0, 10.5, FAINT, "start", false, "to unit");
    body += &text(left - 6.0, top - 8.0, 10.5, FAINT, "end", false, "from");
    for (r, row) in exchange.bytes.iter().enumerate() {
        for (c, &value) in row.iter().enumerate() {
            let (x, y) = (left + c as f64 * cell_w, top + r as f64 * cell_h);
            let colour = if value == 0 { Rgb(0xf6, 0xf7, 0xf9) } else { heat(value as f64 / most) };
            let gap = if cell_w > 8.0 && cell_h > 8.0 { 1.5 } else { 0.0 };
            let _ = writeln!(
                body,
                r#"<rect x="{x:.2}" y="{y:.2}" width="{:.2}" height="{:.2}" rx="{:.1}" fill="{}"><title>{r} → {c}: {}</title></rect>"#,
                cell_w - gap,
                cell_h - gap,
                if gap > 0.0 { 3.0 } else { 0.0 },
                colour.hex(),
                bytes(value)
            );
            let label = bytes(value);
            let size = (cell_w / label.len() as f64 * 1.5).min(cell_h * 0.4).min(12.5);
            if value > 0 && size >= 7.0 {
                let (x, y) = (x + (cell_w - gap) / 2.0, y + (cell_h - gap) / 2.0 + size * 0.36);
                body += &text(x, y, size, &colour.ink().hex(), "middle", false, &label);
            }
        }
    }
    if cell_w >= 30.0 {
        (0..cols).for_each(|c| body += &chip(left + (c as f64 + 0.5) * cell_w - 14.75, top - 23.0, c as u64));
    }
    if cell_h >= 18.0 {
        (0..rows).for_each(|r| body += &chip(left - 36.0, top + (r as f64 + 0.5) * cell_h - 9.25, r as u64));
    }
    let runs = exchange.describe_runs();
    body += &text(0.0, top + h + 26.0, 12.0, INK, "start", false, &runs);
    let width = (left + w).max(runs.chars().count() as f64 * 6.4).max(240.0);
    Block { body, width, height: top + h + 34.0 }
}

fn shorten(text: &str, max: usize) -> String {
    match text.chars().count() > max {
        true => text.chars().take(max - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
