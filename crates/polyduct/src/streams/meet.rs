//! The pipe between a program and its gateway: by its name where both are on one host, else where the gateway says.

use super::control::{none, Answer, Ask};
use super::talk::{Talk, CONNECTS};
use crate::{url, Error};
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::LinkFault;
use polyduct_os::OsError;
use polyduct_pipe::net::{Directory, Entry, PipeAddress};
use polyduct_pipe::{At, Options};
use polyduct_stream::StreamError;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a gateway may take to say where a pipe is.
const ANSWER: Duration = Duration::from_secs(10);

/// A pipe between a program and its gateway.
#[derive(Clone, Debug)]
pub enum Pipe {
    /// Both are on this host.
    Here(String),
    /// They need not be.
    There(PipeAddress, Trust),
}

impl Pipe {
    /// Of this name, where a gateway that listens at `gateway` (`HOST:PORT`) knows it among those of a job; for a
    /// stream to or from a place.
    ///
    /// # Errors
    /// [`StreamError::NoGatewayThere`].
    pub fn there(
        name: &str,
        (gateway, job, place): (&str, &str, &str),
        trust: &Trust,
        patience: (Duration, &dyn Fn() -> bool),
    ) -> Result<Pipe, StreamError> {
        let talk = Talk::open(gateway, job, Some(trust), patience);
        let talk = talk.map_err(|fault| none(place, gateway, fault))?;
        let (gateway, job, talk) = (gateway.to_owned(), job.to_owned(), Mutex::new(Some(talk)));
        let (host, port) = url::host_port(&gateway).unwrap_or_default();
        let desk = Desk { gateway, job, trust: trust.clone(), talk };
        let directory: Option<Arc<dyn Directory>> = Some(Arc::new(desk));
        Ok(Pipe::There(PipeAddress { directory, ..PipeAddress::new(host, port, name) }, trust.clone()))
    }

    /// Another one beside it.
    pub fn beside(&self, what: &str) -> Pipe {
        match self {
            Pipe::Here(name) => Pipe::Here(format!("{name}-{what}")),
            Pipe::There(place, trust) => {
                let name = format!("{}-{what}", place.name);
                Pipe::There(PipeAddress { name, ..place.clone() }, trust.clone())
            }
        }
    }

    /// Options of a port there.
    ///
    /// # Errors
    /// [`Error::Message`] with what is wrong with the settings.
    pub fn options(&self, options: Options) -> Result<Options, Error> {
        match self {
            Pipe::Here(_) => Ok(options),
            Pipe::There(..) => crate::open::across(&options),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Pipe::Here(name) | Pipe::There(PipeAddress { name, .. }, _) => name,
        }
    }
}

impl<'a> From<&'a Pipe> for At<'a> {
    fn from(pipe: &'a Pipe) -> At<'a> {
        match pipe {
            Pipe::Here(name) => At::Name(name),
            Pipe::There(place, trust) => At::Host(place, trust),
        }
    }
}

/// A gateway that knows where pipes are.
struct Desk {
    gateway: String,
    job: String,
    trust: Trust,
    /// The connection over which is asked.
    talk: Mutex<Option<Talk>>,
}

impl Desk {
    fn open(&self) -> Result<Talk, LinkFault> {
        Talk::open(&self.gateway, &self.job, Some(&self.trust), (CONNECTS, &|| false))
    }

    /// The name, which is that of a job.
    fn named(&self, pipe: &str) -> String {
        format!("{}\0{pipe}", self.job)
    }

    /// Asks over the connection that is there, or over another one once it has ended.
    fn ask(&self, ask: &Ask) -> Result<Answer, LinkFault> {
        let mut kept = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut talk) = kept.take() {
            if let Ok(answer) = once(&mut talk, ask) {
                *kept = Some(talk);
                return Ok(answer);
            }
        }
        let mut talk = self.open()?;
        let answer = once(&mut talk, ask);
        // An answer that comes later is none to what is asked next.
        *kept = answer.is_ok().then_some(talk);
        answer
    }
}

fn once(talk: &mut Talk, ask: &Ask) -> Result<Answer, LinkFault> {
    talk.say(ask)?;
    talk.hear(Some(ANSWER), &|| false)?.ok_or_else(|| OsError::PeerClosed.into())
}

impl Directory for Desk {
    fn own_ip(&self) -> Result<IpAddr, LinkFault> {
        let kept = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        let own = kept.as_ref().and_then(Talk::own);
        own.map(|addr| addr.ip()).ok_or_else(|| OsError::PeerClosed.into())
    }

    fn enter(&self, pipe: &str, at: SocketAddr) -> Result<Option<Entry>, LinkFault> {
        let mut talk = self.open()?;
        match once(&mut talk, &Ask::Enter(self.named(pipe), at))? {
            Answer::Done => Ok(Some(Box::new(talk))),
            _ => Ok(None),
        }
    }

    fn find(&self, pipe: &str) -> Result<Option<SocketAddr>, LinkFault> {
        match self.ask(&Ask::Find(self.named(pipe)))? {
            Answer::At(at) => Ok(at),
            _ => Ok(None),
        }
    }
}
