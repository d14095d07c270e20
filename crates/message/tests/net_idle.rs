//! Endpoints that have nothing to do cost nothing.

use polyduct_message::engine::Send;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, NetEvent, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::{ChannelId, HandlerId, Head, Order, Priority};
use rustix::time::{clock_gettime, ClockId};
use std::time::Duration;

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn two_idle_endpoints_use_no_processor() {
    for transport in [Transport::Tcp, Transport::Udp] {
        let start = |me| {
            let key = JobKey::from_bytes([7; 32]).unwrap();
            let config = NetConfig::new(me, 2, 5, key, "127.0.0.1:0".parse().unwrap(), transport);
            NetEndpoint::start(config, |_, i| Some(vec![0; i.at_least as usize])).unwrap()
        };
        let (a, b) = (start(0), start(1));
        a.introduce(1, b.local_addr());
        a.connect(1).unwrap();
        let wait = Some(Duration::from_secs(10));
        while !matches!(a.next_event(wait).unwrap(), Some(NetEvent::Connected { .. })) {}
        let head = Head { handler: HandlerId(1), args: [0; 4] };
        let payload = vec![1; 300_000].into();
        let message = Send { priority: Priority::Low, order: Order::Ordered, head, payload };
        a.send(1, ChannelId(0), message).unwrap();
        while !matches!(b.next_event(wait).unwrap(), Some(NetEvent::Message { .. })) {}
        while !matches!(a.next_event(wait).unwrap(), Some(NetEvent::Delivered { .. })) {}
        let before = cpu();
        let nothing = a.next_event(Some(Duration::from_secs(1))).unwrap();
        let used = cpu() - before;
        println!("{transport:?}: {used:?} in a second");
        assert!(nothing.is_none() && used < Duration::from_millis(50), "{nothing:?} {used:?}");
    }
}
