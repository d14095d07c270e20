//! A page of several parts, each the steps of a stream of its own: of several programs, or of several ports
//! of one.
//!
//! The parts are a group of the gateway's manager, so that no part has a step that is more than one ahead,
//! and what is here need keep no more than a frame of each: when all have brought a step, it is shown.

use super::pictures::Pool;
use super::reducers::Asking;
use super::show::{self, LOOK};
use super::StreamTarget;
use polyduct_display::{Display, DisplayError, Frame, Show, View, ViewInfo, Wants};
use polyduct_os::clock;
use polyduct_pipe::{PipeError, Reader};
use polyduct_port::PortError;
use polyduct_stream::gateway::Lease;
use polyduct_stream::{GroupId, StreamError, Ties};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// What a stream has to do with others: parts of a page are a group.
pub fn ties(target: &StreamTarget) -> Ties {
    let StreamTarget { place, name, part, ties, .. } = target;
    match part {
        Some(_) => Ties { group: Some(format!("{place}/{name}")), ..ties.clone() },
        None => ties.clone(),
    }
}

/// A page.
pub struct Page {
    display: Arc<Display>,
    name: String,
    members: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parts: BTreeMap<String, Content>,
    /// Once all parts are there.
    show: Option<Show>,
}

#[derive(Default)]
struct Content {
    views: Vec<ViewInfo>,
    /// What it has on the page, and what waits for the others.
    shown: Option<Frame>,
    next: Option<Frame>,
    ended: bool,
}

/// Pages that have parts, by their groups.
fn pages() -> MutexGuard<'static, BTreeMap<GroupId, Weak<Page>>> {
    static PAGES: OnceLock<Mutex<BTreeMap<GroupId, Weak<Page>>>> = OnceLock::new();
    let mut pages = PAGES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    pages.retain(|_, page| page.strong_count() > 0);
    pages
}

/// The page of a group's streams.
pub fn page(group: GroupId, display: &Arc<Display>, name: &str, members: u32) -> Arc<Page> {
    let mut pages = pages();
    if let Some(page) = pages.get(&group).and_then(Weak::upgrade) {
        return page;
    }
    let (display, name, members) = (display.clone(), name.to_owned(), members as usize);
    let page = Arc::new(Page { display, name, members, state: Mutex::default() });
    pages.insert(group, Arc::downgrade(&page));
    page
}

impl Page {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a program shows this part on a page of the same name that has all its parts.
    fn is_shown_before(self: &Arc<Page>, part: &str) -> bool {
        let others: Vec<_> = pages().values().filter_map(Weak::upgrade).collect();
        let before = |page: &Arc<Page>| {
            !Arc::ptr_eq(page, self) && page.name == self.name && Arc::ptr_eq(&page.display, &self.display)
        };
        let shows = |page: &Arc<Page>| page.lock().parts.get(part).is_some_and(|content| !content.ended);
        others.iter().any(|page| before(page) && shows(page))
    }
}

impl State {
    /// Shows a step that all parts have brought.
    fn show_next(&mut self) -> Result<(), DisplayError> {
        let live = || self.parts.values().filter(|content| !content.ended);
        let step = live().find_map(|content| content.next.as_ref()).map(|frame| frame.step);
        let all = live().all(|content| content.next.as_ref().map(|frame| frame.step) == step);
        if self.show.is_none() || step.is_none() || !all {
            return Ok(());
        }
        self.parts.values_mut().for_each(|content| content.shown = content.next.take());
        self.publish()
    }

    fn publish(&self) -> Result<(), DisplayError> {
        let Some(show) = &self.show else { return Ok(()) };
        let mut all: Option<Frame> = None;
        for frame in self.parts.values().filter_map(|content| content.shown.clone()) {
            match &mut all {
                None => all = Some(frame),
                Some(all) => {
                    all.time = all.time.max(frame.time);
                    all.values.extend(frame.values);
                    all.views.extend(frame.views);
                    all.exact.extend(frame.exact);
                }
            }
        }
        all.map_or(Ok(()), |frame| show.publish(frame))
    }
}

/// A part of a page. When it is dropped, it has ended, which the page says; the others go on without it.
pub struct Part {
    page: Arc<Page>,
    name: String,
}

impl Part {
    /// A stream takes its part. With the last of them the page is there.
    ///
    /// # Errors
    /// As [`Display::enter`]; [`DisplayError::NameTaken`] too where there is such a part.
    pub fn enter(page: &Arc<Page>, name: &str, mut views: Vec<ViewInfo>) -> Result<Part, DisplayError> {
        views.iter_mut().for_each(|view| view.name = outer(name, &view.name));
        let is_shown_before = page.is_shown_before(name);
        let mut state = page.lock();
        if is_shown_before || state.parts.contains_key(name) {
            return Err(DisplayError::NameTaken { name: format!("{}, part {name}", page.name) });
        }
        state.parts.insert(name.to_owned(), Content { views, ..Content::default() });
        if state.parts.len() == page.members {
            let all = state.parts.values().flat_map(|content| content.views.clone()).collect();
            state.show = Some(page.display.enter(&page.name, all)?);
        }
        drop(state);
        Ok(Part { page: page.clone(), name: name.to_owned() })
    }

    /// What viewers want to see of it.
    fn wants(&self) -> Wants {
        let all = self.page.lock().show.as_ref().map(Show::wants).unwrap_or_default();
        let windows = all.windows.into_iter().filter_map(|(id, mut want)| {
            want.view = inner(&self.name, &want.view)?;
            Some((id, want))
        });
        let own = all.own.iter().filter_map(|view| inner(&self.name, view)).collect();
        Wants { viewers: all.viewers, windows: windows.collect(), own, file: all.file }
    }

    fn named(&self, mut frame: Frame) -> Frame {
        let view = |view: &mut View| view.name = outer(&self.name, &view.name);
        frame.views.iter_mut().chain(&mut frame.exact).for_each(view);
        frame.values =
            frame.values.into_iter().map(|(name, value)| (outer(&self.name, &name), value)).collect();
        frame
    }

    /// Brings a step.
    fn put(&self, frame: Frame) -> Result<(), StreamError> {
        let mut state = self.page.lock();
        if let Some(content) = state.parts.get_mut(&self.name) {
            content.next = Some(self.named(frame));
        }
        state.show_next().map_err(|e| StreamError::Program(e.into()))
    }

    /// Brings more of the step that is shown.
    fn put_again(&self, frame: Frame) -> Result<(), StreamError> {
        let mut state = self.page.lock();
        let content = state.parts.get_mut(&self.name);
        match content.and_then(|content| content.shown.as_mut()).filter(|shown| shown.step == frame.step) {
            Some(shown) => *shown = self.named(frame),
            None => return Ok(()),
        }
        state.publish().map_err(|e| StreamError::Program(e.into()))
    }

    /// The part's program is lost, and the page with it: its group fails.
    pub fn lost(self, why: &str) {
        let mut state = self.page.lock();
        if let Some(content) = state.parts.get_mut(&self.name) {
            content.ended = true;
        }
        if let Some(show) = state.show.take() {
            show.lost(&format!("{}: {why}", self.name));
        }
    }

    fn end(&self) {
        let mut state = self.page.lock();
        match state.parts.get_mut(&self.name) {
            Some(content) if !content.ended => content.ended = true,
            _ => return,
        }
        let ended: Vec<&str> =
            state.parts.iter().filter(|(_, c)| c.ended).map(|(name, _)| &name[..]).collect();
        if let Some(show) = &state.show {
            show.note(&format!("{} ended", ended.join(", ")));
        }
        // It may be that the others waited for it.
        let _ = state.show_next();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a view, or a value, of a part is called on the page: the only array of a program has no name.
fn outer(part: &str, name: &str) -> String {
    match name {
        "" => part.to_owned(),
        name => format!("{part}/{name}"),
    }
}

fn inner(part: &str, name: &str) -> Option<String> {
    let rest = name.strip_prefix(part)?;
    if rest.is_empty() {
        Some(String::new())
    } else {
        rest.strip_prefix('/').map(str::to_owned)
    }
}

/// Shows steps as a part of a page until the program ends; of large arrays pictures that the units make.
///
/// Every step is shown: what is in lock step leaves none out.
///
/// # Errors
/// As [`show::run`].
pub fn run(
    (reader, mut asking): (&mut Reader, Option<&mut Asking>),
    part: &Part,
    target: &StreamTarget,
    lease: &Lease,
    again: &dyn Fn() -> bool,
) -> Result<(), StreamError> {
    let (pool, mut shown, mut seen) = (Pool::default(), false, Wants::default());
    loop {
        lease.check_going(again)?;
        let wants = part.wants();
        let step = match clock::within(Some(LOOK), || reader.peek()) {
            Ok(Some(step)) => step,
            Ok(None) => break,
            Err(PipeError::Port(PortError::Timeout { .. })) => {
                // Of the step before more may be seen meanwhile.
                if let Some(asking) = asking.as_mut().filter(|_| shown && wants != seen && wants.viewers > 0)
                {
                    let more = show::pictures(reader, asking, (false, false), &wants, &pool)?;
                    more.map_or(Ok(()), |frame| part.put_again(frame))?;
                    seen = wants;
                }
                continue;
            }
            Err(error) => return Err(StreamError::Program(error.into())),
        };
        lease.offer(asking.as_ref().map_or(reader.local_len_bytes() as u64, |asking| asking.bytes()))?;
        lease.wait_begun(again)?;
        let wants = part.wants();
        let frame = match &mut asking {
            None => show::frame(reader, step, &wants, target, &pool)?,
            Some(asking) => match show::pictures(reader, asking, (true, true), &wants, &pool)? {
                Some(frame) => frame,
                None => break,
            },
        };
        part.put(frame)?;
        (shown, seen) = (true, wants);
        lease.moved()?;
    }
    // Before the others go on without it.
    part.end();
    lease.no_more()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_display::Options;
    use polyduct_layout::ElemType;

    #[test]
    fn names_of_a_part_are_those_of_its_program_with_its_own_before() {
        for name in ["", "u", "a/b"] {
            assert_eq!(inner("left", &outer("left", name)).as_deref(), Some(name));
        }
        assert_eq!((inner("left", "lefty"), inner("left", "right/u"), inner("left", "")), (None, None, None));
    }

    fn frame(step: u64) -> Frame {
        let view = View::whole("", ElemType::U8, &[1], vec![step as u8].into());
        let (time, values) = (std::time::SystemTime::now(), Default::default());
        Frame { step, time, values, views: vec![view], exact: Vec::new() }
    }

    fn view() -> Vec<ViewInfo> {
        vec![ViewInfo { name: String::new(), shape: vec![1], elem: ElemType::U8, owners: None }]
    }

    #[test]
    fn a_step_is_shown_when_all_parts_have_it_and_nobody_waits_for_one_that_ended() {
        let display = Arc::new(Display::listen(&Options::default()).unwrap());
        let page = page(GroupId(7), &display, "p", 2);
        let steps = || display.status().names.first().and_then(|name| name.step);
        let a = Part::enter(&page, "a", view()).unwrap();
        assert!(matches!(Part::enter(&page, "a", view()), Err(DisplayError::NameTaken { .. })));
        a.put(frame(0)).unwrap();
        let b = Part::enter(&page, "b", view()).unwrap();
        assert_eq!(steps(), None);
        b.put(frame(0)).unwrap();
        assert_eq!(steps(), Some(0));
        b.put(frame(1)).unwrap();
        assert_eq!(steps(), Some(0));
        drop(a);
        assert_eq!(steps(), Some(1));
        b.lost("killed");
        assert_eq!(display.status().names[0].state, "lost");
    }
}
