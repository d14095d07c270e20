//! The pipe between a program and its gateway: by its name where both are on one host, else where the gateway says.

use super::called::GatewayAt;
use super::control::{none, Answer, Ask, Sought};
use super::talk::Talk;
use crate::Error;
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::LinkFault;
use polyduct_message::meeting::Within;
use polyduct_message::LinkError;
use polyduct_os::{clock, poll::poll, OsError};
use polyduct_pipe::net::{Directory, Entry, PipeAddress};
use polyduct_pipe::{At, Options};
use polyduct_stream::StreamError;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How often a gateway is asked where a pipe is, at most.
const REST: Duration = Duration::from_millis(100);

/// A pipe between a program and its gateway.
#[derive(Clone, Debug)]
pub enum Pipe {
    /// Both are on this host.
    Here(String),
    /// They need not be.
    There(PipeAddress, Trust),
}

impl Pipe {
    /// The pipe that is sought, where a gateway knows it that listens somewhere; for a stream to or from a place.
    ///
    /// # Errors
    /// [`StreamError::NoGatewayThere`].
    pub(super) fn there(
        sought: Sought,
        (gateway, place): (&GatewayAt, &str),
        trust: &Trust,
        within: Within<'_>,
    ) -> Result<Pipe, StreamError> {
        let talk = Talk::open(gateway, &sought.job, Some(trust), within);
        let own = talk.map_err(|fault| none(place, gateway, fault))?.own();
        let (host, port) = gateway.place().unwrap_or_default();
        let address = PipeAddress::new(host, port, &sought.pipe);
        let desk =
            Desk { gateway: gateway.clone(), sought, trust: trust.clone(), own: own.map(|addr| addr.ip()) };
        let directory: Option<Arc<dyn Directory>> = Some(Arc::new(desk));
        Ok(Pipe::There(PipeAddress { directory, ..address }, trust.clone()))
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
    gateway: GatewayAt,
    /// The pipe, or the one that others are beside.
    sought: Sought,
    trust: Trust,
    /// The address of this host that the gateway saw.
    own: Option<IpAddr>,
}

impl Desk {
    fn ask(&self, ask: &Ask, within: Within<'_>) -> Result<(Talk, Answer), LinkFault> {
        let (talk, answer) = Talk::ask(&self.gateway, &self.sought.job, Some(&self.trust), ask, within)?;
        let limit_ms = within.most.as_millis() as u64;
        Ok((talk, answer.ok_or(LinkError::Deadline { what: "an answer", limit_ms })?))
    }

    fn sought(&self, pipe: &str) -> Sought {
        Sought { pipe: pipe.to_owned(), ..self.sought.clone() }
    }
}

impl Directory for Desk {
    fn own_ip(&self) -> Result<IpAddr, LinkFault> {
        self.own.ok_or_else(|| OsError::PeerClosed.into())
    }

    fn enter(&self, pipe: &str, at: SocketAddr, within: Within<'_>) -> Result<Option<Entry>, LinkFault> {
        let (talk, answer) = self.ask(&Ask::Enter(self.sought(pipe), at), within)?;
        Ok(match answer {
            Answer::Done => Some(Box::new(talk)),
            _ => None,
        })
    }

    /// A connection for each question: gateways have room for some, and there may be many units.
    fn find(&self, pipe: &str, within: Within<'_>) -> Result<Option<SocketAddr>, LinkFault> {
        let start = clock::now();
        if let Answer::At(Some(at)) = self.ask(&Ask::Find(self.sought(pipe)), within)?.1 {
            return Ok(Some(at));
        }
        // One that waited has waited, and one that has too many who wait is asked later.
        let rest = REST.saturating_sub(clock::now().saturating_sub(start));
        if let Some(left) = within.left(start) {
            poll(&mut [], Some(rest.min(left.most)))?;
        }
        Ok(None)
    }
}
