//! Endpoints.

use super::av::{copy_out, Av, Vector};
use super::cntr::Cntr;
use super::cq::Cq;
use super::domain::Domain;
use super::{atomic, border, border_or, border_size, fid_ops, give, msg, object, rma, tagged, Core, Ep};
use crate::abi::{self, Alias, CmOps, DomainFid, EpFid, EpOps, Fid, FidOps, Info};
use crate::engine::{Bound, Counted, Engine, Limits, Shared, POSTED, WAITING};
use crate::names;
use polyduct_message::config::Config;
use polyduct_message::endpoint::{clock, Network, OsError};
use polyduct_message::link::key::{KeyError, Trust};
use polyduct_message::MessageError;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

/// What is to be told of an operation.
#[derive(Clone, Copy)]
pub(super) enum Flags {
    /// What the endpoint's flags say.
    Own,
    /// What the call says.
    Said(u64),
    /// Nothing: a call that injects.
    Quiet,
}

/// The flags of an operation, and whether its completion is told.
pub(super) struct Asked {
    pub flags: u64,
    pub tells: bool,
}

/// Calls `call` with an endpoint, in its domain, for an operation that begins where `sends` says: what is sent, or
/// what is received.
///
/// # Safety
/// The endpoint was given out, and not closed.
#[inline]
pub(super) unsafe fn on(
    ep: *mut EpFid,
    said: Flags,
    sends: bool,
    call: impl FnOnce(&mut Ep, &mut Shared, &[Option<Vector>], Asked) -> Result<(), c_int>,
) -> isize {
    border_size(|| {
        // SAFETY: the caller's.
        let ep = unsafe { object::<Endpoint>(ep) };
        let entered = ep.core.enter();
        let (this, shared, vectors) = entered.inner.ep(ep.index).ok_or(abi::EINVAL)?;
        let flags = match said {
            Flags::Own => ep.alias.unwrap_or(if sends { this.tx_flags } else { this.rx_flags }),
            Flags::Said(flags) => flags,
            Flags::Quiet => abi::INJECT,
        };
        let bound = this.engine.bounds()[usize::from(!sends)];
        let asks = !bound.selective || flags & abi::COMPLETION != 0;
        let tells = asks && bound.queue.is_some() && !matches!(said, Flags::Quiet);
        call(this, shared, vectors, Asked { flags, tells })
    })
}

static FID: FidOps = FidOps { bind, control, ..fid_ops(close) };
static OPS: EpOps = EpOps {
    size: size_of::<EpOps>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: abi::none,
    rx_ctx: abi::none,
    rx_size_left: abi::none,
    tx_size_left: abi::none,
};
static CM: CmOps = CmOps {
    size: size_of::<CmOps>(),
    setname: abi::none,
    getname,
    getpeer: abi::none,
    connect: abi::none,
    listen: abi::none,
    accept: abi::none,
    reject: abi::none,
    shutdown: abi::none,
    join: abi::none,
};

/// How long an endpoint that ends waits for what it has still to send.
const FAREWELL: Duration = Duration::from_secs(10);

/// An endpoint, as it is given out.
#[repr(C)]
pub(super) struct Endpoint {
    fid: EpFid,
    pub core: Arc<Core>,
    pub index: usize,
    /// Flags of this name of it, where it is another one's.
    pub alias: Option<u64>,
}

pub unsafe extern "C" fn open(
    domain: *mut DomainFid,
    info: *const Info,
    ep: *mut *mut EpFid,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { open2(domain, info, ep, 0, context) }
}

pub unsafe extern "C" fn open2(
    domain: *mut DomainFid,
    info: *const Info,
    ep: *mut *mut EpFid,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    border(|| {
        if flags != 0 {
            return -abi::EBADFLAGS;
        }
        // SAFETY: the caller's.
        let (core, info) = unsafe { (object::<Domain>(domain).core.clone(), info.as_ref()) };
        let Some(info) = info else { return -abi::EINVAL };
        // SAFETY: what libfabric made.
        let (tx, rx) = unsafe { (info.tx_attr.as_ref(), info.rx_attr.as_ref()) };
        let network = match network() {
            Ok(network) => network,
            Err(why) => {
                tracing::error!(why, "no network");
                return -abi::EINVAL;
            }
        };
        // SAFETY: as above.
        let Ok(source) = (unsafe { names::addressed(info.src_addr, info.src_addrlen) }) else {
            return -abi::EINVAL;
        };
        // One that says nothing of where it is to be is somewhere.
        let port = source.filter(|source| source.draw > 0);
        if port.is_some_and(|port| !port.is_here()) {
            tracing::error!("an endpoint was to be opened at an address of another host");
            return -abi::EADDRNOTAVAIL;
        }
        let config = Config::load().map_err(MessageError::from);
        let opened = config.and_then(|config| {
            let limits = Limits::of(&config);
            match (Engine::open(network.clone(), port.as_ref(), limits), port.and_then(|port| port.at)) {
                // Programs that tell their addresses to each other name a port, too, and all the same one.
                (Err(error), Some(at)) if is_taken(&error) && at.ip().is_unspecified() => {
                    tracing::warn!(port = at.port(), "the port is taken, and the endpoint is at another");
                    Engine::open(network, None, limits)
                }
                (opened, _) => opened,
            }
        });
        let engine = match opened {
            Ok(engine) => engine,
            Err(error) => {
                tracing::error!(%error, "no endpoint");
                return match error {
                    MessageError::Config(_) => -abi::EINVAL,
                    _ if is_taken(&error) => -abi::EADDRINUSE,
                    _ => -abi::EIO,
                };
            }
        };
        let made = Ep {
            engine,
            vector: None,
            tx_flags: tx.map_or(0, |tx| tx.op_flags),
            rx_flags: rx.map_or(0, |rx| rx.op_flags),
            numbers: Vec::new(),
            directed: info.caps & abi::DIRECTED_RECV != 0,
            enabled: false,
        };
        let index = super::keep(&mut core.enter().inner.eps, Box::new(made));
        // SAFETY: the caller's.
        unsafe { give(Endpoint { fid: fid(context), core, index, alias: None }, ep) }
    })
}

fn is_taken(error: &MessageError) -> bool {
    matches!(error, MessageError::System(OsError::AddrInUse { .. }))
}

fn fid(context: *mut c_void) -> EpFid {
    EpFid {
        fid: Fid { class: abi::CLASS_EP, context, ops: &raw const FID },
        ops: &raw const OPS,
        cm: &raw const CM,
        msg: &raw const msg::OPS,
        rma: &raw const rma::OPS,
        tagged: &raw const tagged::OPS,
        atomic: &raw const atomic::OPS,
        collective: core::ptr::null(),
    }
}

/// The network of the job, where there is a key for it.
fn network() -> Result<Option<Network>, String> {
    match Trust::from_env() {
        Ok(trust) => Network::here(trust).map(Some).map_err(|e| e.to_string()),
        Err(KeyError::Missing) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    border(|| {
        // SAFETY: what `open` gave out.
        let ep = unsafe { Box::from_raw(fid.cast::<Endpoint>()) };
        if ep.alias.is_some() {
            return 0;
        }
        let deadline = clock::now() + FAREWELL;
        loop {
            let entered = ep.core.enter();
            let Some((this, shared, _)) = entered.inner.ep(ep.index) else { return -abi::EINVAL };
            this.engine.finish(shared);
            if !this.engine.owes() || clock::now() >= deadline {
                let ended = entered.inner.eps[ep.index].take();
                // Its threads end, which others of the domain need not wait for.
                drop(entered);
                drop(ended);
                return 0;
            }
            drop(entered);
            std::thread::yield_now();
        }
    })
}

unsafe extern "C" fn bind(fid: *mut Fid, to: *mut Fid, flags: u64) -> c_int {
    border_or(|| {
        // SAFETY: the caller's.
        let (ep, class) = unsafe { (object::<Endpoint>(fid), (*to).class) };
        let entered = ep.core.enter();
        let (this, _, vectors) = entered.inner.ep(ep.index).ok_or(abi::EINVAL)?;
        match class {
            abi::CLASS_AV => {
                // SAFETY: of this class.
                let index = unsafe { object::<Av>(to) }.index;
                this.vector = Some(index);
                // Who is heard before it is sent to is called as the vector has it.
                for (address, place) in vectors[index].iter().flat_map(Vector::known) {
                    let _ = this.engine.peer(place, address);
                }
                Ok(())
            }
            abi::CLASS_EQ => Ok(()),
            abi::CLASS_CQ => {
                // SAFETY: of this class.
                let queue = Some(unsafe { object::<Cq>(to) }.index);
                let bound = Bound { queue, selective: flags & abi::SELECTIVE_COMPLETION != 0 };
                if flags & abi::TRANSMIT != 0 {
                    this.engine.bind_sends(bound);
                }
                if flags & abi::RECV != 0 {
                    this.engine.bind_receives(bound);
                }
                Ok(())
            }
            abi::CLASS_CNTR => {
                // SAFETY: of this class.
                let counter = unsafe { object::<Cntr>(to) };
                if !Arc::ptr_eq(&ep.core, &counter.core) {
                    return Err(abi::EINVAL);
                }
                for (flag, what) in [
                    (abi::SEND, Counted::Send),
                    (abi::RECV, Counted::Receive),
                    (abi::READ, Counted::Read),
                    (abi::WRITE, Counted::Write),
                    (abi::REMOTE_READ, Counted::RemoteRead),
                    (abi::REMOTE_WRITE, Counted::RemoteWrite),
                ] {
                    if flags & flag != 0 {
                        this.engine.bind_counter(what, counter.index);
                    }
                }
                Ok(())
            }
            _ => Err(abi::EINVAL),
        }
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    border_or(|| {
        // SAFETY: the caller's.
        let ep = unsafe { object::<Endpoint>(fid) };
        let entered = ep.core.enter();
        let (this, ..) = entered.inner.ep(ep.index).ok_or(abi::EINVAL)?;
        match command {
            abi::CMD_ENABLE => {
                let [sends, receives] = this.engine.bounds();
                if sends.queue.is_none() && receives.queue.is_none() && this.engine.counters() == [None; 6] {
                    return Err(abi::ENOCQ);
                }
                this.vector.ok_or(abi::ENOAV)?;
                this.enabled = true;
                Ok(())
            }
            abi::CMD_GETOPSFLAG | abi::CMD_SETOPSFLAG => {
                // SAFETY: the manual's: a number.
                let flags = unsafe { &mut *arg.cast::<u64>() };
                let sends = *flags & abi::TRANSMIT != 0;
                let own = if sends { &mut this.tx_flags } else { &mut this.rx_flags };
                match command {
                    abi::CMD_GETOPSFLAG => *flags = *own,
                    _ => *own = *flags & !(abi::TRANSMIT | abi::RECV),
                }
                Ok(())
            }
            abi::CMD_ALIAS => {
                // SAFETY: the manual's.
                let alias = unsafe { &*arg.cast::<Alias>() };
                let flags = Some(alias.flags & !(abi::TRANSMIT | abi::RECV));
                // SAFETY: the caller's; the object begins with a `Fid`.
                let context = unsafe { (*fid).context };
                let other = Endpoint {
                    fid: self::fid(context),
                    core: ep.core.clone(),
                    index: ep.index,
                    alias: flags,
                };
                // SAFETY: the caller's.
                unsafe { give(other, alias.fid) };
                Ok(())
            }
            _ => Err(abi::ENOSYS),
        }
    })
}

unsafe extern "C" fn getname(fid: *mut Fid, to: *mut c_void, len: *mut usize) -> c_int {
    border_or(|| {
        // SAFETY: the caller's.
        let ep = unsafe { object::<Endpoint>(fid) };
        let entered = ep.core.enter();
        let (this, ..) = entered.inner.ep(ep.index).ok_or(abi::EINVAL)?;
        // SAFETY: the caller's.
        match unsafe { copy_out(this.engine.place(), to, len) } {
            true => Ok(()),
            false => Err(abi::ETOOSMALL),
        }
    })
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    border(|| {
        // SAFETY: the caller's.
        let ep = unsafe { object::<Endpoint>(fid) };
        let entered = ep.core.enter();
        if let Some((this, shared, _)) = entered.inner.ep(ep.index) {
            this.engine.cancel(shared, context);
        }
        0
    })
}

unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    to: *mut c_void,
    len: *mut usize,
) -> c_int {
    border_or(|| {
        // SAFETY: the caller's.
        let ep = unsafe { object::<Endpoint>(fid) };
        let entered = ep.core.enter();
        let (this, ..) = entered.inner.ep(ep.index).ok_or(abi::EINVAL)?;
        let value = match (level, name) {
            (abi::OPT_ENDPOINT, abi::OPT_MIN_MULTI_RECV) => this.engine.least_multi(),
            (abi::OPT_ENDPOINT, abi::OPT_CM_DATA_SIZE) => 0,
            (abi::OPT_ENDPOINT, abi::OPT_TX_SIZE) => WAITING,
            (abi::OPT_ENDPOINT, abi::OPT_RX_SIZE) => POSTED,
            _ => return Err(abi::ENOPROTOOPT),
        };
        // SAFETY: the caller's.
        unsafe {
            if len.replace(size_of::<usize>()) < size_of::<usize>() {
                return Err(abi::ETOOSMALL);
            }
            to.cast::<usize>().write_unaligned(value);
        }
        Ok(())
    })
}

unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    border_or(|| {
        // SAFETY: the caller's.
        let ep = unsafe { object::<Endpoint>(fid) };
        let entered = ep.core.enter();
        let (this, ..) = entered.inner.ep(ep.index).ok_or(abi::EINVAL)?;
        match (level, name) {
            (abi::OPT_ENDPOINT, abi::OPT_MIN_MULTI_RECV) if len == size_of::<usize>() => {
                // SAFETY: the caller's.
                this.engine.set_least_multi(unsafe { value.cast::<usize>().read_unaligned() });
                Ok(())
            }
            _ => Err(abi::ENOPROTOOPT),
        }
    })
}
