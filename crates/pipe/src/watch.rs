//! The thread of every other unit: notices the death of unit 0 of the writers, and, once that unit has closed and left,
//! of everybody else.

use crate::error::UnitName;
use crate::serve::HOST;
use crate::slots::{fault::Fault, Slots};
use polyduct_os::{
    poll::{poll, EventFd, PollItem},
    process::{PidFd, ProcessId},
    socket::Conn,
};
use std::sync::Arc;

/// Watches until stopped.
pub fn run(conn: Conn, me: UnitName, slots: Slots, stop: Arc<EventFd>) {
    let host = conn.peer_pidfd().ok();
    loop {
        let mut items = vec![PollItem::readable(&*stop), PollItem::readable(&conn)];
        items.extend(host.as_ref().map(|h| PollItem::readable(h)));
        if poll(&mut items, None).is_err() || items[0].is_ready() {
            return;
        }
        // Unit 0 has nothing more to say: whatever comes is its end.
        if slots.is_closed(HOST) {
            return watch_processes(me, &slots, &stop);
        }
        let pid = slots.process(HOST).0;
        if host.as_ref().is_none_or(|h| !h.is_alive()) || items[1].is_hangup() {
            return slots.fail(Fault::Lost { unit: HOST, pid });
        }
    }
}

/// Unit 0 has closed and left, so nobody collects hangups any more: watch the processes of the other units.
fn watch_processes(me: UnitName, slots: &Slots, stop: &EventFd) {
    let mut others: Vec<(UnitName, PidFd)> = Vec::new();
    for unit in slots.units().filter(|&u| u != me && u != HOST) {
        let (pid, start_time) = slots.process(unit);
        match PidFd::of(ProcessId { pid, start_time }) {
            Ok(process) => others.push((unit, process)),
            Err(_) if slots.is_closed(unit) => {}
            Err(e) if e.is_peer_gone() => return slots.fail(Fault::Lost { unit, pid }),
            // No descriptor to watch it with: what that unit owes is waited for as long as the timeout says.
            Err(error) => tracing::warn!(%unit, %error, "cannot watch"),
        }
    }
    loop {
        others.retain(|(unit, process)| !(slots.is_closed(*unit) && !process.is_alive()));
        let mut items = vec![PollItem::readable(stop)];
        items.extend(others.iter().map(|(_, p)| PollItem::readable(p)));
        if poll(&mut items, None).is_err() || items[0].is_ready() {
            return;
        }
        for ((unit, process), _) in others.iter().zip(&items[1..]).filter(|(_, i)| i.is_ready()) {
            if !slots.is_closed(*unit) {
                return slots.fail(Fault::Lost { unit: *unit, pid: process.pid() });
            }
        }
    }
}
