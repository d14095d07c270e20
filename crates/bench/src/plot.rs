//! Line charts as SVG.

use crate::svg::{escape, frame, text, FAINT, INK};
use crate::unit_colour;
use std::fmt::Write;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 58.0;
const TOP: f64 = 52.0;
/// Below the chart: the axis, its name and the legend.
const BELOW: f64 = 84.0;
const GAP: f64 = 40.0;
const MARGIN: f64 = 36.0;
const HEADING: f64 = 34.0;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero, evenly.
    Linear,
    /// By factors. What is not positive is left out.
    Log,
}

/// A line.
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points, in rising order of x.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What it says.
    pub note: String,
    /// The horizontal axis: name and scale.
    pub x: (&'static str, Scale),
    /// The vertical axis.
    pub y: (&'static str, Scale),
    /// The lines.
    pub lines: Vec<Line>,
}

/// An axis: places of values from 0 to 1, and the values that are marked.
struct Axis {
    scale: Scale,
    lo: f64,
    hi: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Axis {
        let usable = |v: &f64| v.is_finite() && (scale == Scale::Linear || *v > 0.0);
        let (lo, hi) =
            values.filter(usable).fold((f64::INFINITY, 0.0_f64), |(lo, hi), v| (lo.min(v), hi.max(v)));
        match scale {
            Scale::Linear => {
                let hi = if hi > 0.0 { hi } else { 1.0 };
                // 1, 2 or 5 of a power of ten, so that there are five steps or a little more.
                let power = 10_f64.powf((hi / 5.0).log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|f| f * power).into_iter().find(|s| hi / s <= 6.0);
                let step = step.unwrap_or(hi);
                let count = (hi / step).ceil() as u32;
                let ticks: Vec<f64> = (0..=count).map(|i| f64::from(i) * step).collect();
                Axis { scale, lo: 0.0, hi: f64::from(count) * step, ticks }
            }
            Scale::Log => {
                let (lo, hi) = if lo.is_finite() { (lo, hi.max(lo * 1.01)) } else { (1.0, 10.0) };
                // Powers of two where they are few, else of ten.
                let base: f64 = if hi / lo <= 40.0 { 2.0 } else { 10.0 };
                let (from, to) = (lo.log(base).floor() as i32, (hi.log(base) - 1e-9).ceil() as i32);
                let ticks: Vec<f64> = (from..=to.max(from + 1)).map(|e| base.powi(e)).collect();
                Axis { scale, lo: ticks[0], hi: ticks[ticks.len() - 1], ticks }
            }
        }
    }

    fn place(&self, v: f64) -> f64 {
        match self.scale {
            Scale::Linear => v / self.hi,
            Scale::Log => (v / self.lo).ln() / (self.hi / self.lo).ln(),
        }
    }
}

fn number(v: f64) -> String {
    let digits = match v.abs() {
        a if a >= 10.0 || a == 0.0 => 0,
        a if a >= 1.0 => usize::from(v.fract() != 0.0),
        a => (1.0 - a.log10().floor()) as usize,
    };
    let text = format!("{v:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A page of charts, so many beside each other.
pub fn page(title: &str, charts: &[Chart], across: usize) -> String {
    let across = across.clamp(1, charts.len().max(1));
    let rows = charts.len().div_ceil(across).max(1);
    let (w, h) = (LEFT + WIDTH + GAP, TOP + HEIGHT + BELOW);
    let width = 2.0 * MARGIN + across as f64 * w - GAP;
    let height = 2.0 * MARGIN + HEADING + rows as f64 * h - 20.0;
    let mut body = text(MARGIN, MARGIN + 6.0, 17.0, INK, "start", true, title);
    if charts.is_empty() {
        body += &text(MARGIN, MARGIN + HEADING + 20.0, 12.0, FAINT, "start", false, "nothing was measured");
    }
    for (i, chart) in charts.iter().enumerate() {
        let (x, y) = (MARGIN + (i % across) as f64 * w, MARGIN + HEADING + (i / across) as f64 * h);
        let _ = writeln!(body, r#"<g transform="translate({x:.1} {y:.1})">"#);
        body += &draw(chart);
        body += "</g>\n";
    }
    frame(title, width, height, "", &body)
}

fn draw(chart: &Chart) -> String {
    let points = || chart.lines.iter().flat_map(|l| &l.points);
    let x_axis = Axis::new(chart.x.1, points().map(|p| p.0));
    let y_axis = Axis::new(chart.y.1, points().map(|p| p.1));
    let at = |p: &(f64, f64)| (LEFT + x_axis.place(p.0) * WIDTH, TOP + HEIGHT * (1.0 - y_axis.place(p.1)));
    let mut body = text(0.0, 14.0, 14.0, INK, "start", true, &chart.title);
    body += &text(0.0, 32.0, 12.0, FAINT, "start", false, &chart.note);
    // Every so many marks are named, as there is room for.
    let every = x_axis.ticks.len().div_ceil(9).max(1);
    for (i, &tick) in x_axis.ticks.iter().enumerate() {
        let x = LEFT + x_axis.place(tick) * WIDTH;
        body += &rule(x, TOP, x, TOP + HEIGHT);
        if i % every == 0 {
            body += &text(x, TOP + HEIGHT + 15.0, 10.0, FAINT, "middle", false, &number(tick));
        }
    }
    for &tick in &y_axis.ticks {
        let y = TOP + HEIGHT * (1.0 - y_axis.place(tick));
        body += &rule(LEFT, y, LEFT + WIDTH, y);
        body += &text(LEFT - 6.0, y + 3.5, 10.0, FAINT, "end", false, &number(tick));
    }
    body += &text(LEFT + WIDTH / 2.0, TOP + HEIGHT + 31.0, 11.0, INK, "middle", false, chart.x.0);
    body += &text(LEFT, TOP - 6.0, 11.0, INK, "end", false, chart.y.0);
    for (i, line) in chart.lines.iter().enumerate() {
        let colour = unit_colour(i as u64).hex();
        let shown = |p: &&(f64, f64)| {
            let (x, y) = at(p);
            x.is_finite() && y.is_finite()
        };
        let path: Vec<String> =
            line.points.iter().filter(shown).map(|p| format!("{:.2} {:.2}", at(p).0, at(p).1)).collect();
        if path.len() > 1 {
            let _ = writeln!(
                body,
                r#"<path d="M{}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>"#,
                path.join("L")
            );
        }
        for p in line.points.iter().filter(shown) {
            let (x, y) = at(p);
            let _ = writeln!(
                body,
                r#"<circle cx="{x:.2}" cy="{y:.2}" r="2.6" fill="{colour}"><title>{}: {}, {}</title></circle>"#,
                escape(&line.name),
                number(p.0),
                number(p.1)
            );
        }
        let (x, y) = (LEFT + (i % 2) as f64 * WIDTH / 2.0, TOP + HEIGHT + 50.0 + (i / 2) as f64 * 17.0);
        let _ = writeln!(
            body,
            r#"<rect x="{x:.1}" y="{:.1}" width="14" height="4" rx="2" fill="{colour}"/>"#,
            y - 6.0
        );
        body += &text(x + 20.0, y, 11.0, INK, "start", false, &line.name);
    }
    body
}

fn rule(x: f64, y: f64, to_x: f64, to_y: f64) -> String {
    format!("<path d=\"M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}\" stroke=\"#e3e7ed\" stroke-width=\"1\"/>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_reach_around_their_values() {
        let linear = Axis::new(Scale::Linear, [3.0, 47.0].into_iter());
        assert_eq!(linear.ticks, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!((linear.place(0.0), linear.place(25.0)), (0.0, 0.5));
        let log = Axis::new(Scale::Log, [1.0, 8.0].into_iter());
        assert_eq!(log.ticks, [1.0, 2.0, 4.0, 8.0]);
        assert!((log.place(8.0) - 1.0).abs() < 1e-9);
        assert_eq!(Axis::new(Scale::Log, [0.02, 700.0].into_iter()).ticks.len(), 6);
        for scale in [Scale::Linear, Scale::Log] {
            let none = Axis::new(scale, [0.0, f64::NAN].into_iter());
            assert!(none.ticks.len() >= 2 && none.hi > none.lo);
        }
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.05, 0.001, 2.0, 2.5, 40.0, 1e6].map(number);
        assert_eq!(texts, ["0", "0.05", "0.001", "2", "2.5", "40", "1000000"]);
    }
}
