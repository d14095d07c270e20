//! The page that viewers load: one document with everything in it, put together when this crate is compiled.

/// The whole page, served at `/` and at every name. `tests/python/display_mock.py` reads the parts and their
/// order from here.
pub(crate) const PAGE: &str = concat!(
    include_str!("head.html"),
    "<style>",
    include_str!("style.css"),
    "</style></head>",
    include_str!("body.html"),
    "<script>'use strict';",
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

#[cfg(test)]
mod tests {
    use super::PAGE;

    #[test]
    fn the_page_is_small_and_asks_nobody_for_anything() {
        assert!(PAGE.len() < 80 << 10, "{} bytes", PAGE.len());
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
