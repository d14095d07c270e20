//! Writes the parts that all drawings share: the page, its letters and colours, and its destination.

use std::fmt::Write as _;
use std::path::Path;

/// Letters that matter.
pub const INK: &str = "#1c222b";
/// Letters that explain.
pub const FAINT: &str = "#717a88";

/// A page of so many pixels around a drawing. `defs` is what it refers to.
pub fn frame(title: &str, width: f64, height: f64, defs: &str, body: &str) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="Inter, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif" font-size="12">
<title>{}</title>
<defs>{defs}</defs>
<rect x="0.5" y="0.5" width="{:.0}" height="{:.0}" rx="14" fill="#ffffff" stroke="#e3e7ed"/>
"##,
        escape(title),
        width - 1.0,
        height - 1.0,
    );
    page + body + "</svg>\n"
}

/// One line of text.
pub fn text(x: f64, y: f64, size: f64, colour: &str, anchor: &str, strong: bool, content: &str) -> String {
    let weight = if strong { r#" font-weight="600""# } else { "" };
    let anchor = if anchor == "start" { String::new() } else { format!(r#" text-anchor="{anchor}""#) };
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\" \
            fill=\"{colour}\"{anchor}{weight}>{}</text>\n",
        escape(content)
    )
}

/// Text as XML takes it; control characters are left out, for which it has no form.
pub fn escape(text: &str) -> String {
    let legal = |c: &char| !c.is_control();
    text.chars()
        .filter(legal)
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

/// Writes into a file, or to standard output where it is called `-`; false, after saying so, where that
/// fails.
#[must_use]
pub fn write(path: &Path, content: &str) -> bool {
    if path == Path::new("-") {
        return crate::text::print(content);
    }
    let done = std::fs::write(path, content);
    if let Err(error) = &done {
        crate::text::say!("polyduct: cannot write {}: {error}", path.display());
    }
    done.is_ok()
}
