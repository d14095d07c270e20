//! The control interface of gateways that are processes of their own: what is asked of them, over a socket of this host that
//! only processes of the same user are heard at, or where they listen for those that know the job's key.
//!
//! ```no_run
//! use polyduct::gateway;
//!
//! for stream in gateway::status("north", "")?.streams {
//!     println!("{} {} steps", stream.name, stream.steps);
//! }
//! gateway::command("north", "", 3, gateway::Command::Pause)?;
//! # Ok::<(), polyduct::Error>(())
//! ```

use super::show;
use super::talk::{self, Talk};
use super::work::Job;
use crate::{url, Error};
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::handshake::unpack;
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::LinkFault;
use polyduct_os::clock;
use polyduct_os::poll::{poll, PollItem};
use polyduct_port::{Array, Options};
use polyduct_stream::{Status, StreamError};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a gateway may take for an answer that needs nobody else.
const ANSWER: Duration = Duration::from_secs(10);
/// How long one wait takes, for interrupts to be seen.
const SLICE: Duration = Duration::from_millis(100);

/// What is done to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// No further step of it begins.
    Pause,
    /// It goes on.
    Resume,
    /// It ends: its program gets an error.
    Close,
    /// It moves so many steps before it gives way to others.
    Quantum(u32),
    /// Streams of a higher priority go first.
    Priority(i32),
}

/// What is asked of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// To carry a stream: answered when the other end is reached, and again at the end.
    Carry(Box<Job>),
    /// What it has.
    Status,
    /// To do something to a stream.
    Do(u32, Command),
    /// To tell what a stream goes to something.
    Tell(u32, Vec<String>),
    /// To tell where a pipe is to those who ask, while the connection is there.
    Enter(String, SocketAddr),
    /// Where a pipe is.
    Find(String),
}

/// What a gateway answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The other end is reached, and the stream is carried; what people are to know of that.
    Reached(Option<String>),
    /// The stream has ended, with all of its steps.
    Ended,
    /// It is not, or no more: why.
    Failed(String),
    /// What the gateway has, as JSON.
    Status(String),
    /// It is done.
    Done,
    /// Where a pipe is; `None` where it is not yet.
    At(Option<SocketAddr>),
}

/// Whether a gateway does what these bytes ask of it, and that it can be planned. For fuzzing.
#[doc(hidden)]
pub fn understands(bytes: &[u8]) -> bool {
    match unpack(bytes) {
        Ok(Ask::Carry(job)) => job.check().and_then(|()| job.arrays()).is_ok_and(|arrays| {
            drop(show::reduced(&arrays, job.units));
            drop(show::announced(&arrays, job.units));
            job.shares(MEMBERS).iter().chain([&job.share]).all(|share| share.own(share.of_step(7)) == Some(7))
        }),
        Ok(_) => true,
        Err(_) => false,
    }
}

/// An ask for fuzzing to begin with: to carry what four units write to a place.
#[doc(hidden)]
pub fn an_ask(url: &str) -> Option<impl Serialize> {
    let Ok(url::Target::Stream(target)) = url::parse(url, url::Mode::Write, |_| None) else { return None };
    let dataset = Dataset::new(&[3000, 2000], ElemType::F32).ok()?;
    let array = Array { name: String::new(), dataset, layout: "block,*".into(), open: None };
    let options = Options { units: 4, ..Options::default() };
    Some(Ask::Carry(Box::new(Job::new(&target, true, "stream-1-0", &[array], &options))))
}

/// Gateways of one name on a host, at most.
const MEMBERS: u32 = 16;

/// What the gateways of a name are called: the first like all of them, and `north/1`, `north/2` and so on.
pub(super) fn names(gateway: &str) -> impl Iterator<Item = String> + use<'_> {
    let more = if gateway.contains('/') { 1..1 } else { 1..MEMBERS };
    std::iter::once(gateway.to_owned()).chain(more.map(move |number| format!("{gateway}/{number}")))
}

/// Those of them that there are on this host; `job` is that of the name, empty for none. Of places where gateways listen
/// (`HOST:PORT,HOST:PORT`) all.
pub fn members(gateway: &str, job: &str) -> Vec<String> {
    match gateway.contains(':') {
        true => gateway.split(',').map(str::to_owned).collect(),
        false => {
            names(gateway).filter(|name| Talk::open(name, job, None, (ANSWER, &|| false)).is_ok()).collect()
        }
    }
}

/// There is no such gateway.
pub(super) fn none(place: &str, gateway: &str, fault: LinkFault) -> StreamError {
    let (place, gateway) = (place.to_owned(), gateway.to_owned());
    match url::host_port(&gateway) {
        None => StreamError::NoGateway { place, gateway, source: fault.into() },
        Some(_) => StreamError::NoGatewayThere { place, gateway, source: fault.into() },
    }
}

/// A stream that other processes carry.
pub(super) struct Handed {
    talks: Vec<(String, Talk)>,
    place: String,
}

/// Has the gateways of a name carry a stream: returns when they have reached the other end.
///
/// # Errors
/// [`Error::Stream`]: there is no such gateway, or what kept one from that.
pub(super) fn hand_over(
    gateway: &str,
    job: &Job,
    trust: Option<&Trust>,
    again: &dyn Fn() -> bool,
) -> Result<(Handed, Option<String>), Error> {
    let mut members = members(gateway, &job.job);
    let shares = job.shares(members.len() as u32);
    // Where there is none, the first says so. One after the other: a receiver knows lanes by their order.
    members.resize_with(members.len().max(1), || gateway.to_owned());
    let (mut talks, mut notes) = (Vec::new(), None);
    for (member, share) in members.into_iter().zip(shares) {
        let (talk, note) = hand_to(&member, &Job { share, ..job.clone() }, trust, again)?;
        talks.push((member, talk));
        notes = notes.or(note);
    }
    Ok((Handed { talks, place: job.target.to_string() }, notes))
}

/// Has a gateway carry its share of a stream: returns when it has reached the other end.
///
/// # Errors
/// [`Error::Stream`]: there is no such gateway, or what kept it from that.
fn hand_to(
    gateway: &str,
    job: &Job,
    trust: Option<&Trust>,
    again: &dyn Fn() -> bool,
) -> Result<(Talk, Option<String>), Error> {
    let (place, name) = (job.target.to_string(), gateway.to_owned());
    let none = |fault: LinkFault| none(&place, gateway, fault);
    let mut talk = Talk::open(gateway, &job.job, trust, (job.open, again)).map_err(none)?;
    talk.say(&Ask::Carry(Box::new(job.clone()))).map_err(none)?;
    // It waits for the other end itself.
    let answer = talk.hear::<Answer>(Some(job.open + ANSWER), again);
    let told = |what: String| StreamError::Told { place: place.clone(), reached: false, what };
    match answer.map_err(none)? {
        Some(Answer::Reached(note)) => Ok((talk, note)),
        Some(Answer::Failed(why)) => Err(told(why).into()),
        Some(other) => Err(told(format!("{place}: gateway {name:?} answered {other:?}")).into()),
        None => Err(told(format!("{place}: gateway {name:?} did not answer in time")).into()),
    }
}

impl Handed {
    /// Waits for the end of the stream.
    ///
    /// # Errors
    /// What ended it before its program did; that a gateway has died rather than what that means to another.
    pub fn wait(mut self, again: &dyn Fn() -> bool) -> Result<(), StreamError> {
        let place = self.place.clone();
        let told = |what: String| StreamError::Told { place: place.clone(), reached: true, what };
        let mut failed: Option<(Duration, String)> = None;
        while !self.talks.is_empty() {
            let mut still = Vec::new();
            for (gateway, mut talk) in self.talks {
                let why = match talk.hear::<Answer>(Some(Duration::ZERO), again) {
                    Ok(None) => {
                        still.push((gateway, talk));
                        continue;
                    }
                    Ok(Some(Answer::Ended)) => continue,
                    Ok(Some(Answer::Failed(why))) => why,
                    Ok(Some(other)) => format!("{place}: gateway {gateway:?} answered {other:?}"),
                    Err(_) => return Err(told(format!("{place}: gateway {gateway:?} has died"))),
                };
                failed.get_or_insert((clock::now(), why));
            }
            self.talks = still;
            if again() {
                return Err(StreamError::Stopped { why: "the program gave up".into() });
            }
            let heard_out =
                failed.as_ref().is_some_and(|(since, _)| clock::now().saturating_sub(*since) > SLICE);
            if heard_out || self.talks.is_empty() {
                break;
            }
            let mut items: Vec<_> = self.talks.iter().map(|(_, talk)| PollItem::readable(talk)).collect();
            poll(&mut items, Some(SLICE)).map_err(|e| StreamError::System { what: e.to_string() })?;
        }
        failed.map_or(Ok(()), |(_, why)| Err(told(why)))
    }
}

/// What a gateway has: one on this host by its name, of a job (empty for none), or where it listens (`HOST:PORT`).
///
/// # Errors
/// [`Error::Stream`] where there is no such gateway.
pub fn status(gateway: &str, job: &str) -> Result<Status, Error> {
    let place = format!("gateway {gateway}");
    let wrong = |what: String| StreamError::System { what: format!("{place}: {what}") };
    match ask(gateway, job, &Ask::Status)? {
        Answer::Status(json) => Ok(serde_json::from_str(&json).map_err(|e| wrong(e.to_string()))?),
        other => Err(wrong(format!("answered {other:?}")).into()),
    }
}

/// Does something to a stream of a gateway, which is named as for [`status`].
///
/// # Errors
/// [`Error::Stream`]: there is no such gateway, or it refuses that.
pub fn command(gateway: &str, job: &str, stream: u32, what: Command) -> Result<(), Error> {
    done(gateway, job, &Ask::Do(stream, what))
}

/// Tells the display that a stream of a gateway goes to: `colors=NAME`, `range=LO..HI`, `range=auto`, `scale=log`.
/// The pages of who looks follow.
///
/// # Errors
/// As [`command`].
pub fn tell(gateway: &str, job: &str, stream: u32, what: &[String]) -> Result<(), Error> {
    done(gateway, job, &Ask::Tell(stream, what.to_vec()))
}

fn done(gateway: &str, job: &str, what: &Ask) -> Result<(), Error> {
    let wrong = |what: String| StreamError::System { what: format!("gateway {gateway}: {what}") };
    match ask(gateway, job, what)? {
        Answer::Done => Ok(()),
        Answer::Failed(why) => Err(wrong(why).into()),
        other => Err(wrong(format!("answered {other:?}")).into()),
    }
}

fn ask(gateway: &str, job: &str, what: &Ask) -> Result<Answer, Error> {
    let none = |fault: LinkFault| none(&format!("gateway {gateway}"), gateway, fault);
    let trust = talk::trust(gateway, None)?;
    let mut talk = Talk::open(gateway, job, trust.as_ref(), (ANSWER, &|| false)).map_err(none)?;
    talk.say(what).map_err(none)?;
    let answer = talk.hear(Some(ANSWER), &|| false).map_err(none)?;
    let late = || StreamError::System { what: format!("gateway {gateway} did not answer in time") };
    Ok(answer.ok_or_else(late)?)
}
