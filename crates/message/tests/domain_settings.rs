//! Every setting at its least and at its most: messages of all lengths arrive as they were.

mod units;

use polyduct_message::config::Config;
use polyduct_message::domain::Options;
use polyduct_message::link::net::config::Transport;
use units::{at_with, sizes, Place};

/// Shorter and longer than every threshold but those that make no pieces any more.
const LENGTHS: [usize; 9] = [0, 1, 32, 33, 257, 5000, 9000, 70_000, 300_000];

fn payload(unit: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(unit).to_le_bytes()[3]).collect()
}

/// Each unit sends messages of all lengths to the other.
fn exchange(place: Place, adjust: &(impl Fn(&mut Options) + Sync), what: &str) {
    at_with(place, 2, adjust, &|d| {
        let (me, peer) = (d.unit(), 1 - d.unit());
        for (tag, len) in (0..).zip(LENGTHS) {
            let mail = d.send_recv((peer, tag), [0; 2], &payload(me, len), (Some(peer), Some(tag))).unwrap();
            assert!(mail.payload == payload(peer, len), "{what}, {place:?}: {len} bytes are others");
        }
        d.barrier().unwrap();
    });
}

#[test]
fn every_setting_works_from_its_least_to_its_most() {
    let ends = Config::default();
    for setting in ends.settings() {
        for value in [setting.min, setting.max] {
            let what = format!("{} = {value}", setting.name);
            let adjust = |options: &mut Options| options.config = sizes(&[(setting.name, value)]);
            for place in [Place::Here, Place::Hosts(Transport::Tcp, true), Place::Hosts(Transport::Udp, true)]
            {
                exchange(place, &adjust, &what);
            }
        }
    }
}

#[test]
fn all_settings_of_fragments_at_their_least_work_together() {
    let names = [
        "first_fragment",
        "max_fragment",
        "far_first_fragment",
        "tcp_max_fragment",
        "udp_max_fragment",
        "whole",
    ];
    let small = |options: &mut Options| options.config = sizes(&names.map(|name| (name, 256)));
    for place in [Place::Here, Place::Hosts(Transport::Tcp, false), Place::Hosts(Transport::Udp, true)] {
        exchange(place, &small, "all at their least");
    }
}
