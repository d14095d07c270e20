//! The page that viewers load: one document with everything in it, put together when this crate is compiled.

use std::sync::LazyLock;

/// The whole page, served at `/` and at every name.
pub(crate) static PAGE: LazyLock<String> = LazyLock::new(|| squeezed(SOURCE));

/// The tables of colours that the page has.
pub const TABLES: [&str; 7] = ["viridis", "magma", "inferno", "cividis", "RdBu", "coolwarm", "twilight"];

/// What marks a line as a comment. A block's later lines have two spaces, CSS's `* {` has one.
const COMMENTS: [&str; 3] = ["//", "/**", "*  "];

/// The parts in their order; `tests/python/display_mock.py` reads it from here.
const SOURCE: &str = concat!(
    include_str!("head.html"),
    "<style>",
    include_str!("style.css"),
    "</style></head>",
    include_str!("body.html"),
    "<script>'use strict';\n",
    include_str!("tables.js"),
    include_str!("values.js"),
    include_str!("colour.js"),
    include_str!("scale.js"),
    include_str!("parts.js"),
    include_str!("bar.js"),
    include_str!("camera.js"),
    include_str!("curve.js"),
    include_str!("owners.js"),
    include_str!("dims.js"),
    include_str!("pointer.js"),
    include_str!("view.js"),
    include_str!("history.js"),
    include_str!("scalars.js"),
    include_str!("link.js"),
    include_str!("save.js"),
    include_str!("stage.js"),
    include_str!("controls.js"),
    include_str!("names.js"),
    include_str!("main.js"),
    "</script></html>",
);

/// Without comments, indentation, and ends of lines that mean nothing.
fn squeezed(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    for line in source.lines().map(str::trim) {
        if line.is_empty() || COMMENTS.iter().any(|mark| line.starts_with(mark)) {
            continue;
        }
        out.push_str(line);
        if !line.ends_with(['{', ',', ';', '(']) {
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{PAGE, TABLES};

    #[test]
    fn the_page_has_these_tables_and_no_others() {
        let there = |name: &&str| include_str!("tables.js").contains(&format!("\n  {name}: {{ kind: "));
        assert!(TABLES.iter().all(there));
        assert_eq!(include_str!("tables.js").matches("{ kind: ").count(), TABLES.len());
    }

    #[test]
    fn the_page_is_small_and_asks_nobody_for_anything() {
        assert!(PAGE.len() < 84 << 10, "{} bytes", PAGE.len());
        for part in ["http://", "https://", "@import", "src=\"", "eval("] {
            assert!(!PAGE.contains(part), "{part}");
        }
    }

    #[test]
    fn no_part_ends_the_script_early() {
        assert_eq!(PAGE.matches("</script").count(), 1);
        assert_eq!(PAGE.matches("</style").count(), 1);
    }
}
