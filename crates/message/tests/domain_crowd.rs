//! Many units that join a domain by datagrams at once.

mod units;

use polyduct_message::link::net::config::Transport;
use std::time::{Duration, Instant};
use units::{at_with, Place};

#[test]
fn as_many_as_there_are_join_by_datagrams_at_once() {
    for units in [48, 64] {
        let begun = Instant::now();
        let place = Place::Hosts(Transport::Udp, units == 48);
        // Two processors have much to do for all of these threads.
        let patient =
            |options: &mut polyduct_message::domain::Options| options.open_timeout = Duration::from_secs(60);
        at_with(place, units, &patient, &|domain| domain.barrier().unwrap());
        println!("{units} units joined by datagrams after {:?}", begun.elapsed());
    }
}
