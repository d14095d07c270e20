//! Channels: an order of their own, a priority.

use crate::args::{bytes, place, text, unit};
use crate::border::call;
use crate::code::Code;
use crate::domain::{words, Domain};
use crate::error::Failure;
use crate::guard::lock;
use crate::handle::{self, Handle};
use polyduct::message::domain::{self, ChannelOptions};
use polyduct::message::{self, MessageError, Order, Priority};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

/// A channel to a unit.
pub struct Channel {
    domain: Arc<Domain>,
    to: u32,
    channel: Mutex<domain::Channel>,
}

impl Channel {
    fn run(
        &self,
        f: impl FnOnce(&message::Domain, &mut domain::Channel) -> Result<(), MessageError>,
    ) -> Result<Code, Failure> {
        self.domain.run(|domain| match message::Domain::in_handler() {
            // Another thread may hold it, or this very one.
            true => Err(MessageError::InHandler),
            false => f(domain, &mut lock(&self.channel)),
        })?;
        Ok(Code::OK)
    }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_channel_open(
    channel: *mut Handle,
    domain: Handle,
    to: i32,
    high: c_int,
    ordered: c_int,
) -> c_int {
    call(|| {
        let (at, domain, to) = (place("channel", channel)?, handle::get::<Domain>(domain)?, unit("to", to)?);
        let priority = if high != 0 { Priority::High } else { Priority::Low };
        let order = if ordered != 0 { Order::Ordered } else { Order::Any };
        let made = domain.run(|domain| domain.channel_with(to, ChannelOptions { priority, order }))?;
        let handle = handle::give(Arc::new(Channel { domain, to, channel: Mutex::new(made) }))?;
        // SAFETY: a place of the caller's.
        unsafe { at.write(handle) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_channel_send(
    channel: Handle,
    tag: u32,
    payload: *const c_void,
    len: usize,
) -> c_int {
    call(|| {
        let channel = handle::get::<Channel>(channel)?;
        // SAFETY: memory of the caller's.
        let payload = unsafe { bytes("bytes", payload.cast(), len) }?;
        channel.run(|_, channel| channel.send(tag, [0; 2], payload))
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_channel_post(
    channel: Handle,
    name: *const c_char,
    args: *const u32,
    payload: *const c_void,
    len: usize,
) -> c_int {
    call(|| {
        let this = handle::get::<Channel>(channel)?;
        // SAFETY: text, words and memory of the caller's.
        let (name, args, payload) =
            unsafe { (text("name", name)?, words(args), bytes("payload", payload.cast(), len)?) };
        this.run(|domain, channel| channel.bulk(domain.lookup(name, this.to)?, args, payload))
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_channel_flush(channel: Handle) -> c_int {
    call(|| handle::get::<Channel>(channel)?.run(|_, channel| channel.flush()))
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_channel_close(channel: Handle) -> c_int {
    call(|| handle::take::<Channel>(channel).map(|_| Code::OK))
}
