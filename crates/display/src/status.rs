//! What a display says of itself.

use crate::elem;
use crate::hub::Places;
use crate::wire::seconds;
use serde::Serialize;

/// What is shown, to how many, and how much of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Every name that there is, in order.
    pub names: Vec<NameStatus>,
    /// Connections at the moment.
    pub connections: usize,
    /// Connections that found no room.
    pub refused: u64,
}

/// What one name shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NameStatus {
    /// The name.
    pub name: String,
    /// `running`, `ended` or `lost`.
    pub state: &'static str,
    /// The newest step.
    pub step: Option<u64>,
    /// When it was made, in seconds since 1970.
    pub time: Option<f64>,
    /// What was announced.
    pub views: Vec<ViewStatus>,
    /// Viewers, paused ones too.
    pub viewers: usize,
    /// Those that are not paused.
    pub looking: usize,
    /// Frames that were published.
    pub frames: u64,
    /// Frames that viewers have drawn, counted for each.
    pub shown: u64,
    /// Frames that viewers missed because they were slower, counted for each.
    pub dropped: u64,
    /// Bytes of frames that went to viewers.
    pub bytes: u64,
}

/// An announced array.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ViewStatus {
    /// Its name.
    pub name: String,
    /// Sizes, slowest dimension first.
    pub shape: Vec<u64>,
    /// NumPy's code of its type, without the byte order.
    pub dtype: &'static str,
}

impl Status {
    pub(crate) fn of(places: &Places) -> Status {
        let names = places.all.iter().map(|(name, place)| {
            let newest = place.newest.as_ref().map(|n| &n.frame);
            NameStatus {
                name: name.to_string(),
                state: place.state.name(),
                step: newest.map(|f| f.step),
                time: newest.map(|f| seconds(f.time)),
                views: place
                    .views
                    .iter()
                    .map(|v| ViewStatus {
                        name: v.name.clone(),
                        shape: v.shape.clone(),
                        dtype: elem::code(v.elem).unwrap_or_default(),
                    })
                    .collect(),
                viewers: place.viewers,
                looking: place.wants.wants().viewers,
                frames: place.frames,
                shown: place.shown,
                dropped: place.dropped,
                bytes: place.bytes,
            }
        });
        Status { names: names.collect(), connections: places.connections, refused: places.refused }
    }
}
