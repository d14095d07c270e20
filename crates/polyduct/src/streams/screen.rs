//! What a gateway does for a stream that is shown: it reads the pipe that the program writes, for browsers.

use super::reducers::{self, Asking};
use super::tell::Listens;
use super::work::{program, why, Job, WHOLE};
use super::{page, show};
use polyduct_display::{Display, DisplayError, Show};
use polyduct_pipe::Reader;
use polyduct_port::{Expect, Interrupt};
use polyduct_stream::gateway::Lease;
use polyduct_stream::{Adu, Format, StreamError};
use std::sync::Arc;

/// Where a program's steps are shown.
pub struct Screen {
    display: Arc<Display>,
    shown: Shown,
}

enum Shown {
    /// On a page of its own.
    Whole(Show),
    /// As a part of a page.
    Part(page::Part),
}

impl Screen {
    /// A page that is there, and waits for steps.
    ///
    /// # Errors
    /// [`StreamError::Listen`] where another program has the name.
    pub fn enter(job: &Job, display: Arc<Display>, lease: &Lease) -> Result<Screen, StreamError> {
        let (target, views) = (&job.target, show::announced(&job.arrays()?, job.units));
        let shown = match (&target.part, lease.group()) {
            (Some(part), Some(group)) => {
                let page = page::page(group, &display, &target.name, target.ties.members.unwrap_or(1));
                page::Part::enter(&page, part, views).map(Shown::Part)
            }
            _ => display.enter(&target.name, views).map(Shown::Whole),
        };
        let listen = |e: DisplayError| StreamError::Listen {
            place: target.to_string(),
            source: std::io::Error::other(e.to_string()),
        };
        Ok(Screen { shown: shown.map_err(listen)?, display })
    }

    /// What people are to know of it.
    pub fn note(&self, job: &Job) -> String {
        let (name, members) = (&job.target.name, job.target.ties.members);
        let when = match (&self.shown, members) {
            (Shown::Part(_), Some(members)) if members > 1 => format!(", once its {members} parts are there"),
            _ => String::new(),
        };
        format!("{name} is shown at {}{when}", self.display.address(name))
    }

    /// Shows steps until the program ends.
    ///
    /// # Errors
    /// What ended it before; who looks is told, too.
    pub fn run(self, job: &Job, lease: &Lease, again: &Interrupt) -> Result<(), StreamError> {
        let shown = self.show(job, lease, again);
        if let Err(error) = &shown {
            // What the lease says of others is more than what this one has seen of it.
            let error = lease.check_stopped().err().map_or_else(|| error.to_string(), |e| e.to_string());
            match self.shown {
                Shown::Whole(show) => show.lost(&error),
                Shown::Part(part) => part.lost(&error),
            }
        }
        shown
    }

    fn show(&self, job: &Job, lease: &Lease, again: &Interrupt) -> Result<(), StreamError> {
        let (target, arrays, pipe) = (&job.target, job.arrays()?, job.between(&**again)?);
        let (known, views) = (show::reduced(&arrays, job.units, target), show::announced(&arrays, job.units));
        let mut options = job.options(&pipe)?;
        options.interrupt = Some(again.clone());
        let opened = match views.iter().any(|view| view.name.is_empty()) {
            true => Reader::open(&pipe, WHOLE, &Expect::default(), &options),
            false => Reader::open_arrays(&pipe, &show::everything(), &options),
        };
        let mut reader = opened.map_err(program)?;
        // Arrays that grow have no bytes yet.
        let grown = views.iter().map(|view| view.shape.iter().product::<u64>() * view.elem.len_bytes());
        let held = grown.sum::<u64>().max(reader.local_len_bytes() as u64);
        let _listens = Listens::new(lease.stream(), &self.display, &target.name, target.part.as_deref());
        let most = if known.is_some() { reducers::MOST } else { held };
        // Two frames of it may be on the way to each viewer, and are shared by all.
        let ready = Format::new(Adu::Changing { most }, most.max(1), 1, 1).map_err(StreamError::from);
        let ready = ready.and_then(|format| lease.ready(format, 2));
        let shown = ready.and_then(|()| match known {
            None => self.steps(&mut reader, None, job, lease, &**again),
            Some(known) => {
                let mut asking = Asking::open(&pipe, known, &options)?;
                let shown = self.steps(&mut reader, Some(&mut asking), job, lease, &**again);
                match &shown {
                    Ok(()) => asking.close(),
                    Err(error) => asking.abort(&why(lease, error)),
                }
                shown
            }
        });
        match &shown {
            Ok(()) => drop(reader.close()),
            Err(error) => reader.abort_because(&why(lease, error)),
        }
        shown
    }

    fn steps(
        &self,
        reader: &mut Reader,
        asking: Option<&mut Asking>,
        Job { target, blocks, .. }: &Job,
        lease: &Lease,
        again: &dyn Fn() -> bool,
    ) -> Result<(), StreamError> {
        match (&self.shown, asking) {
            (Shown::Whole(show), None) => show::run(reader, (show, *blocks), target, lease, again),
            (Shown::Whole(show), Some(asking)) => {
                show::run_reduced(reader, asking, (show, *blocks), lease, again)
            }
            (Shown::Part(part), asking) => page::run((reader, asking), part, target, lease, again),
        }
    }
}
