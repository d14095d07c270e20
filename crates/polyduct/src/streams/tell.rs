//! Commands for displays from outside: what colours mean on the pages of who looks.

use polyduct_display::{Display, TABLES};
use polyduct_stream::StreamId;
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// What a stream shows: on which display, under which name, as which part.
type Shown = (Weak<Display>, String, Option<String>);

fn shown() -> MutexGuard<'static, BTreeMap<StreamId, Shown>> {
    static SHOWN: OnceLock<Mutex<BTreeMap<StreamId, Shown>>> = OnceLock::new();
    SHOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that can be told, for as long as this is there.
pub struct Listens(StreamId);

impl Listens {
    /// A stream shows something.
    pub fn new(stream: StreamId, display: &Arc<Display>, name: &str, part: Option<&str>) -> Listens {
        shown().insert(stream, (Arc::downgrade(display), name.to_owned(), part.map(str::to_owned)));
        Listens(stream)
    }
}

impl Drop for Listens {
    fn drop(&mut self) {
        shown().remove(&self.0);
    }
}

/// Tells a display: `colors=`, `range=`, `scale=`. Who looks, and who comes to look, sees it that way.
///
/// # Errors
/// What is not understood, or that the stream is no display.
pub fn tell(stream: StreamId, words: &[String]) -> Result<(), String> {
    let mut look = Map::new();
    words.iter().try_for_each(|word| understand(word, &mut look))?;
    let known = shown().get(&stream).cloned();
    let none = || format!("stream {stream} is not shown on a display");
    let (display, name, part) = known.ok_or_else(none)?;
    let display = display.upgrade().ok_or_else(none)?;
    match display.look(&name, part.as_deref().unwrap_or(""), look) {
        true => Ok(()),
        false => Err(format!("stream {stream}: its page is not shown yet")),
    }
}

fn understand(word: &str, look: &mut Map<String, Value>) -> Result<(), String> {
    let expected = |what: String| Err(format!("{word:?}: expected {what}"));
    match word.split_once('=') {
        Some(("colors", name)) if TABLES.contains(&name) => {
            look.insert("table".into(), name.into());
        }
        Some(("colors", _)) => return expected(format!("one of {}", TABLES.join(", "))),
        Some(("scale", name @ ("linear" | "log" | "symmetric"))) => {
            look.insert("scale".into(), name.into());
        }
        Some(("scale", _)) => return expected("linear, log or symmetric".into()),
        Some(("range", "auto")) => {
            look.insert("mode".into(), "auto".into());
        }
        Some(("range", range)) => {
            let ends = range.split_once("..").and_then(|(lo, hi)| Some((lo.parse().ok()?, hi.parse().ok()?)));
            match ends {
                Some((lo, hi)) if f64::is_finite(lo) && f64::is_finite(hi) && lo < hi => {
                    look.insert("mode".into(), "hand".into());
                    look.insert("hand".into(), json!([lo, hi]));
                }
                _ => return expected("auto, or LO..HI".into()),
            }
        }
        _ => return expected("colors=, range= or scale=".into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_understood_or_refused_with_a_reason() {
        let of = |word: &str| {
            let mut look = Map::new();
            understand(word, &mut look).map(|()| Value::Object(look))
        };
        assert_eq!(of("colors=magma"), Ok(json!({"table": "magma"})));
        assert_eq!(of("range=-1..2.5"), Ok(json!({"mode": "hand", "hand": [-1.0, 2.5]})));
        assert_eq!(of("range=auto"), Ok(json!({"mode": "auto"})));
        assert_eq!(of("scale=log"), Ok(json!({"scale": "log"})));
        for word in ["", "colors", "colors=pink", "range=1..1", "range=0..inf", "range=2", "scale=", "pause"]
        {
            assert!(of(word).is_err_and(|why| why.contains("expected")), "{word}");
        }
        assert!(tell(StreamId(1 << 31), &["scale=log".into()]).is_err_and(|why| why.contains("not shown")));
    }
}
