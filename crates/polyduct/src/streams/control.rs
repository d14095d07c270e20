//! The control interface of gateways that are processes of their own: what is asked of them, over a socket of this host that
//! only processes of the same user are heard at, or where they listen for those that know the job's key.
//!
//! ```no_run
//! use polyduct::gateway;
//!
//! let north = gateway::GatewayAt::Name("north".into());
//! for stream in gateway::status(&north, "")?.streams {
//!     println!("{} {} steps", stream.name, stream.steps);
//! }
//! gateway::command(&north, "", 3, gateway::Command::Pause)?;
//! # Ok::<(), polyduct::Error>(())
//! ```

use super::called::{GatewayAt, MEMBERS};
use super::show;
use super::talk::{self, Talk};
use super::work::Job;
use crate::{url, Error};
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::handshake::unpack;
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::LinkFault;
use polyduct_message::meeting::{Within, SLICE};
use polyduct_os::clock;
use polyduct_os::poll::{poll, PollItem};
use polyduct_port::{Array, Options};
use polyduct_stream::{Status, StreamError};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a gateway may take for an answer that needs nobody else.
const ANSWER: Duration = Duration::from_secs(5);
/// How much longer than for the other end of a stream its word on that is waited for.
const WORD: Duration = Duration::from_secs(1);

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
    Enter(Sought, SocketAddr),
    /// Where a pipe is; waited for, for a while.
    Find(Sought),
}

/// A pipe that units of a program and its gateway meet at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sought {
    /// The job that its name belongs to.
    pub job: String,
    /// Its name.
    pub pipe: String,
    /// The number that unit 0 has drawn for it, for those who know it: the gateway comes to no other pipe of the name.
    pub drawn: Option<u64>,
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
    /// It has no room for one more: later.
    Full,
}

/// Whether a gateway does what these bytes ask of it, and that it can be planned. For fuzzing.
#[doc(hidden)]
pub fn understands(bytes: &[u8]) -> bool {
    match unpack(bytes) {
        Ok(Ask::Carry(job)) => job.check().and_then(|()| job.arrays()).is_ok_and(|arrays| {
            drop(show::reduced(&arrays, job.units, &job.target));
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

/// Those of gateways that there are: of a name on this host, which is that of a `job` (empty for none), those that answer;
/// of places all.
pub fn members(gateways: &[GatewayAt], job: &str) -> Vec<GatewayAt> {
    let is_there =
        |one: &GatewayAt| one.place().is_some() || Talk::open(one, job, None, Within::time(ANSWER)).is_ok();
    gateways.iter().flat_map(GatewayAt::members).filter(is_there).collect()
}

/// There is no such gateway.
pub(super) fn none(place: &str, at: &GatewayAt, fault: LinkFault) -> StreamError {
    let (place, gateway) = (place.to_owned(), at.to_string());
    match at {
        GatewayAt::Name(_) => StreamError::NoGateway { place, gateway, source: fault.into() },
        GatewayAt::Place(..) => StreamError::NoGatewayThere { place, gateway, source: fault.into() },
    }
}

/// A stream that other processes carry.
pub(super) struct Handed {
    talks: Vec<(GatewayAt, Talk)>,
    place: String,
}

/// Has its gateways carry a stream: returns when they have reached the other end.
///
/// # Errors
/// [`Error::Stream`]: there is no such gateway, or what kept one from that.
pub(super) fn hand_over(
    job: &Job,
    trust: Option<&Trust>,
    gives_up: &dyn Fn() -> bool,
) -> Result<(Handed, Option<String>), Error> {
    let (start, gateways) = (clock::now(), &job.target.gateways);
    let mut members = members(gateways, &job.job);
    let shares = job.shares(members.len() as u32);
    // Where there is none, the first says so. One after the other: a receiver knows lanes by their order.
    if members.is_empty() {
        members.extend(gateways.first().cloned());
    }
    let (mut talks, mut notes) = (Vec::new(), None);
    for (member, share) in members.into_iter().zip(shares) {
        // Each waits for the other end itself, and its word is waited for a little longer.
        let open = job.open.saturating_sub(clock::now().saturating_sub(start));
        let within = Within { most: open.saturating_add(WORD), gives_up };
        let (talk, note) = hand_to(&member, &Job { share, open, ..job.clone() }, trust, within)?;
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
    gateway: &GatewayAt,
    job: &Job,
    trust: Option<&Trust>,
    within: Within<'_>,
) -> Result<(Talk, Option<String>), Error> {
    let (place, carry) = (job.target.to_string(), Ask::Carry(Box::new(job.clone())));
    let (talk, answer) =
        Talk::ask(gateway, &job.job, trust, &carry, within).map_err(|fault| none(&place, gateway, fault))?;
    let told = |what: String| StreamError::Told { place: place.clone(), reached: false, what };
    match answer {
        Some(Answer::Reached(note)) => Ok((talk, note)),
        Some(Answer::Failed(why)) => Err(told(why).into()),
        Some(other) => Err(told(format!("{place}: gateway {gateway} answered {other:?}")).into()),
        None => Err(told(format!("{place}: gateway {gateway} did not answer in time")).into()),
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
                let why = match talk.hear::<Answer>(Within { most: Duration::ZERO, gives_up: again }) {
                    Ok(None) => {
                        still.push((gateway, talk));
                        continue;
                    }
                    Ok(Some(Answer::Ended)) => continue,
                    Ok(Some(Answer::Failed(why))) => why,
                    Ok(Some(other)) => format!("{place}: gateway {gateway} answered {other:?}"),
                    Err(_) => return Err(told(format!("{place}: gateway {gateway} has died"))),
                };
                failed.get_or_insert((clock::now(), why));
            }
            self.talks = still;
            if again() {
                return Err(StreamError::stopped(place, "the program gave up"));
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

/// What a gateway has: one on this host, whose name is that of a `job` (empty for none), or one that listens somewhere.
///
/// # Errors
/// [`Error::Stream`] where there is no such gateway.
pub fn status(gateway: &GatewayAt, job: &str) -> Result<Status, Error> {
    status_within(gateway, job, ANSWER)
}

/// The same, with no more than this time for the answer.
pub(super) fn status_within(gateway: &GatewayAt, job: &str, most: Duration) -> Result<Status, Error> {
    let place = format!("gateway {gateway}");
    let wrong = |what: String| StreamError::System { what: format!("{place}: {what}") };
    match ask(gateway, job, &Ask::Status, most)? {
        Answer::Status(json) => Ok(serde_json::from_str(&json).map_err(|e| wrong(e.to_string()))?),
        other => Err(wrong(format!("answered {other:?}")).into()),
    }
}

/// Does something to a stream of a gateway, which is named as for [`status`].
///
/// # Errors
/// [`Error::Stream`]: there is no such gateway, or it refuses that.
pub fn command(gateway: &GatewayAt, job: &str, stream: u32, what: Command) -> Result<(), Error> {
    done(gateway, job, &Ask::Do(stream, what))
}

/// Tells the display that a stream of a gateway goes to: `colors=NAME`, `range=LO..HI`, `range=auto`, `scale=log`.
/// The pages of who looks follow.
///
/// # Errors
/// As [`command`].
pub fn tell(gateway: &GatewayAt, job: &str, stream: u32, what: &[String]) -> Result<(), Error> {
    done(gateway, job, &Ask::Tell(stream, what.to_vec()))
}

fn done(gateway: &GatewayAt, job: &str, what: &Ask) -> Result<(), Error> {
    let wrong = |what: String| StreamError::System { what: format!("gateway {gateway}: {what}") };
    match ask(gateway, job, what, ANSWER)? {
        Answer::Done => Ok(()),
        Answer::Failed(why) => Err(wrong(why).into()),
        other => Err(wrong(format!("answered {other:?}")).into()),
    }
}

fn ask(gateway: &GatewayAt, job: &str, what: &Ask, most: Duration) -> Result<Answer, Error> {
    let trust = talk::trust(gateway, None)?;
    let asked = Talk::ask(gateway, job, trust.as_ref(), what, Within::time(most));
    let (_, answer) = asked.map_err(|fault| none(&format!("gateway {gateway}"), gateway, fault))?;
    let late = || StreamError::System { what: format!("gateway {gateway} did not answer in time") };
    Ok(answer.ok_or_else(late)?)
}
