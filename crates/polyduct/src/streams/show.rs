//! A program's steps on a display.

use super::pictures::{Pool, Whole};
use super::reducers::{Answer, Asking, Known};
use super::{colour, StreamTarget};
use crate::Error;
use bytes::Bytes;
use polyduct_display::{Display, DisplayError, Frame, Options as Place, Owner, Show, View, ViewInfo, Wants};
use polyduct_layout::{Dataset, Layout};
use polyduct_os::clock;
use polyduct_os::poll::{poll, PollItem};
use polyduct_pipe::{Given, Reader};
use polyduct_port::values::{unpack, Value};
use polyduct_port::{Array, ArrayPart, PortError, Rule};
use polyduct_store::file::values;
use polyduct_stream::gateway::Lease;
use polyduct_stream::StreamError;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

/// How often a step is taken where nobody looks: for who asks for a picture now and then.
const UNSEEN: Duration = Duration::from_millis(250);
/// How long one look for a step takes, where viewers may want to see more of the one before.
pub const LOOK: Duration = Duration::from_millis(20);
/// Boxes of owners that are told, at most: those of more are not drawn.
const OWNER_BOXES: usize = 4096;

/// Displays of this process, by host and port.
type Displays = BTreeMap<(Option<String>, u16), Weak<Display>>;

/// Displays that stay when nothing is shown there any more: who looks keeps the last frame.
static KEPT: OnceLock<Mutex<Vec<Arc<Display>>>> = OnceLock::new();

/// Has displays of this process stay.
pub fn keep() {
    KEPT.get_or_init(Mutex::default);
}

/// The display at a place; all streams of this process that go there share it.
///
/// # Errors
/// [`Error::Stream`] where this side cannot listen there.
pub fn display(target: &StreamTarget) -> Result<Arc<Display>, Error> {
    static DISPLAYS: OnceLock<Mutex<Displays>> = OnceLock::new();
    let mut known = DISPLAYS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let key = (target.place.host.clone(), target.place.port);
    if let Some(display) = known.get(&key).and_then(Weak::upgrade) {
        return Ok(display);
    }
    known.retain(|_, display| display.strong_count() > 0);
    let place = Place { host: key.0.clone(), port: key.1, token: None };
    let display = Arc::new(Display::listen(&place).map_err(|e| refused(target, e))?);
    known.insert(key, Arc::downgrade(&display));
    if let Some(kept) = KEPT.get() {
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(display.clone());
    }
    Ok(display)
}

fn refused(target: &StreamTarget, error: DisplayError) -> StreamError {
    let source = std::io::Error::other(error.to_string());
    StreamError::Listen { place: target.to_string(), source }
}

/// What a program brings, as arrays with names; the only one has none.
pub fn arrays(given: &Given, layout: &str) -> Vec<Array> {
    match given {
        Given::Dataset(dataset) => {
            let (name, layout) = (String::new(), layout.to_owned());
            vec![Array { name, dataset: *dataset, layout, open: None }]
        }
        Given::Bundle(arrays) => arrays.clone(),
        Given::ByReader => Vec::new(),
    }
}

/// What a program announces: its arrays, and who has what of them.
pub fn announced(arrays: &[Array], units: u32) -> Vec<ViewInfo> {
    let info = |array: &Array| ViewInfo {
        name: array.name.clone(),
        shape: array.dataset.shape().to_vec(),
        elem: array.dataset.elem(),
        owners: owners(array, units),
    };
    arrays.iter().map(info).collect()
}

fn owners(array: &Array, units: u32) -> Option<Vec<Owner>> {
    let mapping = array.layout.parse::<Layout>().ok()?.bind(&array.dataset, units.into()).ok()?;
    let mut count = 0;
    let mut owners = Vec::new();
    for unit in 0..units {
        let mut boxes = Vec::new();
        for b in mapping.boxes_iter(unit.into()).ok()? {
            count += 1;
            if count > OWNER_BOXES {
                return None;
            }
            boxes.push((b.lo.to_vec(), b.hi.to_vec()));
        }
        owners.push(Owner { unit, boxes });
    }
    Some(owners)
}

/// Everything of every array.
pub fn everything() -> [Rule; 1] {
    [Rule { pattern: "*".into(), layout: "stripe(1024MiB)".into(), ..Rule::default() }]
}

/// Bytes of a step that the gateway takes as a whole, at most: of a larger one units make pictures.
const TAKEN: u64 = 8 << 20;

/// The arrays of a program whose units make pictures of them; `None` where the gateway takes them as they are.
pub fn reduced(arrays: &[Array], units: u32, target: &StreamTarget) -> Option<Vec<Known>> {
    let bytes = arrays.iter().map(|array| array.dataset.len_bytes()).sum::<u64>();
    // Neither is there a picture of elements that have no value.
    let known = |array: &Array| Known::of(array, units, colour::of(target, &array.dataset));
    (bytes > TAKEN).then(|| arrays.iter().map(known).collect::<Option<Vec<_>>>())?
}

/// Shows pictures that the units make, until the program ends.
///
/// `clock` is the gateway's own reader of the program's steps: it tells that there is one, and has it as it is for who
/// asks for a file.
///
/// # Errors
/// As [`run`].
pub fn run_reduced(
    clock: &mut Reader,
    asking: &mut Asking,
    (show, blocks): (&Show, bool),
    lease: &Lease,
    again: &dyn Fn() -> bool,
) -> Result<(), StreamError> {
    let program = |e: polyduct_pipe::PipeError| StreamError::Program(e.into());
    let (pool, mut shown, mut last, mut seen) =
        (Pool::default(), None::<u64>, None::<Duration>, Wants::default());
    loop {
        lease.check_going(again)?;
        let wants = show.wants();
        if !blocks && waits_unseen(show, &wants, last)? {
            continue;
        }
        let changed = wants != seen && wants.viewers > 0;
        let now = clock::now();
        let next = match clock::within(Some(LOOK), || clock.peek()) {
            Ok(Some(step)) => Some(step),
            Ok(None) => break,
            Err(polyduct_pipe::PipeError::Port(PortError::Timeout { .. })) => None,
            Err(error) => return Err(program(error)),
        };
        let newer = next.filter(|step| shown.is_none_or(|shown| *step > shown));
        let Some(step) = newer.or_else(|| shown.filter(|_| changed)) else {
            if next.is_some() {
                clock.pass().map_err(program)?;
            }
            continue;
        };
        lease.offer(asking.bytes())?;
        lease.wait_begun(again)?;
        let which = (next.is_some(), newer.is_some());
        let Some(frame) = pictures(clock, asking, which, &wants, &pool)? else { break };
        (shown, last, seen) = (Some(frame.step.max(step)), Some(now), wants);
        show.publish(frame).map_err(|e| StreamError::Program(e.into()))?;
        lease.moved()?;
    }
    lease.no_more()
}

/// Pictures that the units make of a step: `next` where one waits, `newer` where that was not shown. `None`
/// at the program's end.
///
/// # Errors
/// [`StreamError::Program`].
pub fn pictures(
    clock: &mut Reader,
    asking: &mut Asking,
    (next, newer): (bool, bool),
    wants: &Wants,
    pool: &Pool,
) -> Result<Option<Frame>, StreamError> {
    let program = |e: polyduct_pipe::PipeError| StreamError::Program(e.into());
    let mut exact = Vec::new();
    if next {
        match wants.file {
            true => {
                let parts = clock.arrays().to_vec();
                let arrays = read(clock, &parts, pool).map_err(program)?;
                exact.extend(parts.iter().zip(&arrays).map(|(part, data)| whole_view(part, data)));
            }
            false => clock.pass().map_err(program)?,
        }
    }
    let answer = asking.ask(newer, wants, pool)?;
    let frame = |Answer { step, values, views }| Frame {
        step,
        time: SystemTime::now(),
        values: json(&values),
        views,
        exact,
    };
    Ok(answer.map(frame))
}

/// Shows steps until the program ends, which may wait for each to be taken.
///
/// # Errors
/// [`StreamError`]: the program's, or one that says who stopped it.
pub fn run(
    reader: &mut Reader,
    (show, blocks): (&Show, bool),
    target: &StreamTarget,
    lease: &Lease,
    again: &dyn Fn() -> bool,
) -> Result<(), StreamError> {
    let (pool, mut last) = (Pool::default(), None::<Duration>);
    loop {
        let program = |e: polyduct_pipe::PipeError| StreamError::Program(e.into());
        let wants = show.wants();
        if !blocks && waits_unseen(show, &wants, last)? {
            lease.check_going(again)?;
            continue;
        }
        let Some(step) = reader.peek().map_err(program)? else { break };
        // As it is by now.
        let wants = show.wants();
        last = Some(clock::now());
        lease.offer(reader.arrays().iter().map(|part| part.at.len() as u64).sum())?;
        lease.wait_begun(again)?;
        let frame = frame(reader, step, &wants, target, &pool)?;
        show.publish(frame).map_err(|e| StreamError::Program(e.into()))?;
        lease.moved()?;
    }
    lease.no_more()
}

/// All arrays of the next step, and what viewers want to see of them.
///
/// # Errors
/// [`StreamError::Program`].
pub fn frame(
    reader: &mut Reader,
    step: u64,
    wants: &Wants,
    target: &StreamTarget,
    pool: &Pool,
) -> Result<Frame, StreamError> {
    let parts = reader.arrays().to_vec();
    let arrays = read(reader, &parts, pool).map_err(|e| StreamError::Program(e.into()))?;
    let mut views: Vec<View> = Vec::new();
    for (part, data) in parts.iter().zip(&arrays) {
        let dataset = part.mapping.dataset();
        let whole = Whole { name: &part.name, dataset, data, colour: colour::of(target, dataset) };
        views.extend(whole.for_everybody(pool));
        let wanted = wants.windows.iter().filter(|(_, want)| want.view == part.name);
        views.extend(wanted.filter_map(|(id, want)| whole.wanted(Some(*id), want, pool)));
    }
    let exact = parts.iter().zip(&arrays).map(|(part, data)| whole_view(part, data)).collect();
    let values = json(reader.values());
    Ok(Frame { step, time: SystemTime::now(), values, views, exact })
}

/// Where nobody looks, and it is not yet time for the next frame: waits until it is, or somebody looks. The newest step
/// is taken then, and none before: what a program shows last is not missed.
fn waits_unseen(show: &Show, wants: &Wants, last: Option<Duration>) -> Result<bool, StreamError> {
    let left = last.map_or(Duration::ZERO, |last| (last + UNSEEN).saturating_sub(clock::now()));
    if wants.viewers > 0 || wants.file || left.is_zero() {
        return Ok(false);
    }
    let waited = poll(&mut [PollItem::readable(&show.changed())], Some(left));
    waited.map(|_| true).map_err(|e| StreamError::System { what: e.to_string() })
}

fn whole_view(part: &ArrayPart, data: &Bytes) -> View {
    let dataset: &Dataset = part.mapping.dataset();
    View::whole(&part.name, dataset.elem(), dataset.shape(), data.clone())
}

/// Reads all arrays of the next step.
fn read(
    reader: &mut Reader,
    parts: &[ArrayPart],
    pool: &Pool,
) -> Result<Vec<Bytes>, polyduct_pipe::PipeError> {
    let len = parts.iter().map(|part| part.at.end).max().unwrap_or(0);
    let all = pool.fill(len, |memory| {
        // One call for all: the parts lie one behind the other.
        let mut rest = &mut *memory;
        let (mut order, mut slices) = ((0..parts.len()).collect::<Vec<_>>(), Vec::new());
        order.sort_by_key(|at| (parts[*at].at.start, parts[*at].at.end));
        let mut end = 0;
        for at in order {
            let range = &parts[at].at;
            let (_, behind) = std::mem::take(&mut rest).split_at_mut(range.start.saturating_sub(end));
            let (one, behind) = behind.split_at_mut(range.len());
            slices.push((at, one));
            (rest, end) = (behind, range.end);
        }
        slices.sort_by_key(|(at, _)| *at);
        let mut slices: Vec<&mut [u8]> = slices.into_iter().map(|(_, slice)| slice).collect();
        reader.read_arrays(&mut slices).map(drop)
    })?;
    Ok(parts.iter().map(|part| all.slice(part.at.clone())).collect())
}

/// Values as a page shows them; of what JSON cannot have it says what that is.
fn json(packed: &[u8]) -> serde_json::Map<String, serde_json::Value> {
    let says = |what: String| Ok::<_, Infallible>(what.into());
    let shown = |(name, value): (String, Value)| (name, values::json(&value, &says).unwrap_or_default());
    unpack(packed).unwrap_or_default().into_iter().map(shown).collect()
}
