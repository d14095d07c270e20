//! What the writer says of the steps of a file.

use std::sync::{Arc, Mutex, PoisonError};

/// The values of each step as JSON, which unit 0 knows when the file gets its name.
#[derive(Clone, Debug, Default)]
pub struct Said(Arc<Mutex<Vec<String>>>);

impl Said {
    /// Notes those of a step, in place of what was said of it before.
    pub fn say(&self, step: usize, values: &str) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() <= step {
            said.resize(step + 1, String::new());
        }
        said[step] = values.to_owned();
    }

    /// Those of all steps, as far as something was said.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
