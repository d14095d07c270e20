//! Holds a unit of a writing program to the file and to the other units.

use super::coordinator::Coordinator;
use super::form::Form;
use super::member::{Membership, Welcome};
use super::target::{Draft, Target};
use super::together::Together;
use super::wire::{Spec, ToHost};
use super::Options;
use crate::FileError;
use polyduct_os::socket::{Conn, Listener};
use polyduct_os::OsError;
use polyduct_port::{Peer, PortError};
use std::fs::File;
use std::thread::JoinHandle;
use std::time::Duration;

/// What a port holds while the file is being written.
pub enum WriteEnd {
    /// The only unit.
    Alone(Draft),
    /// One of several; unit 0 also has the thread that brings them together.
    Among { member: Membership, target: Option<Target>, welcome: Welcome, host: Option<JoinHandle<()>> },
}

impl WriteEnd {
    /// The file, or the directory of a Zarr array.
    pub fn file(&self) -> &File {
        match self {
            WriteEnd::Alone(draft) => &draft.file,
            WriteEnd::Among { welcome, .. } => &welcome.file,
        }
    }

    /// Gives the file up and tells the others.
    pub fn abort(self, reason: &str) {
        match self {
            WriteEnd::Alone(draft) => drop(draft),
            WriteEnd::Among { member, host, welcome, .. } => {
                drop(welcome);
                member.abort(reason);
                if let Some(host) = host {
                    let _ = host.join();
                }
            }
        }
    }

    /// Lets the file go that others have given up or lost.
    pub fn leave(self, error: &FileError) {
        if let (
            WriteEnd::Among { target: Some(target), welcome, .. },
            FileError::Port(PortError::PeerLost { peer: Peer { unit: 0, .. }, .. }),
        ) = (&self, error)
        {
            target.sweep(welcome.temporary.as_deref(), Some(&welcome.file));
        }
        self.abort(&error.to_string());
    }
}

/// Brings the units of a program together.
pub fn meet(
    target: Target,
    spec: Spec,
    form: &Form,
    together: Together,
    options: &Options,
    waited: &mut Duration,
) -> Result<WriteEnd, FileError> {
    let path = target.path.clone();
    let socket = target.socket_name()?;
    let (mut member, target, host) = match options.port.unit {
        0 => {
            let listener = Listener::bind(&socket).map_err(|e| match e {
                OsError::AddrInUse { .. } => FileError::busy(&path, &options.port.program),
                e => FileError::os(&path)(e),
            })?;
            let (ours, theirs) = Conn::pair().map_err(FileError::os(&path))?;
            let draft = Draft::new(target)?;
            let host = Coordinator::new(listener, draft, form.clone(), spec, theirs, together, options);
            let thread = std::thread::Builder::new().name("polyduct-file".into());
            let thread =
                thread.spawn(move || host.run()).map_err(|e| FileError::io(&path, "start a thread", &e))?;
            (Membership::own(ours, &path, options)?, None, Some(thread))
        }
        unit => {
            let (units, program) = (options.port.units, options.port.program.clone());
            let hello = ToHost::Hello { unit, units, program, spec };
            (Membership::connect(&socket, &hello, &path, options)?, Some(target), None)
        }
    };
    let given_up = |member: Membership, host: Option<JoinHandle<()>>, error: FileError| {
        if let (Some(target), FileError::Port(PortError::PeerLost { peer: Peer { unit: 0, .. }, .. })) =
            (&target, &error)
        {
            target.sweep(None, None);
        }
        member.abort(&error.to_string());
        if let Some(host) = host {
            let _ = host.join();
        }
        Err(error)
    };
    let welcome = match member.welcome(options, waited) {
        Ok(welcome) => welcome,
        Err(e) => return given_up(member, host, e),
    };
    Ok(WriteEnd::Among { member, target, welcome, host })
}
