//! A process that does not belong to a domain across hosts learns why, and disturbs nobody.

mod units;

use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Network, Options};
use polyduct_message::engine::Incoming;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::MessageError;
use polyduct_rig::free_address;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::{options, unique};

const WAYS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

struct Meeting {
    name: String,
    root: SocketAddr,
    key: JobKey,
    transport: Transport,
}

impl Meeting {
    fn new(transport: Transport) -> Meeting {
        Meeting { name: unique("intruder"), root: free_address(), key: JobKey::fresh().unwrap(), transport }
    }

    fn options(&self, unit: u32) -> Options {
        let mut options = options(&self.name, unit, 2);
        let network = Network::new(self.root, self.key.clone());
        options.network = Some(Network { transport: self.transport, apart: unit.into(), ..network });
        options
    }

    /// An endpoint that proves to be a unit, and says nothing.
    fn bare(&self, unit: u32) -> NetEndpoint<Vec<u8>> {
        let spread = |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
        let number = self.name.bytes().fold(0xcbf2_9ce4_8422_2325, spread);
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let mut config = NetConfig::new(unit, 2, number, self.key.clone(), anywhere, self.transport);
        config.session.channels = 4096;
        config.session.max_payload = Config::default().bytes("message");
        NetEndpoint::start(config, |_, m: &Incoming| Some(vec![0; m.at_least as usize])).unwrap()
    }

    /// What a process learns that says it is unit 1, and how long that took.
    fn intrude(&self) -> (MessageError, Duration) {
        let begun = Instant::now();
        let error = Domain::join(self.options(1)).map(drop).expect_err("unit 1 is there already");
        (error, begun.elapsed())
    }

    fn assert_taken(&self, (error, after): (MessageError, Duration)) {
        let taken = MessageError::NameTaken { domain: self.name.clone(), unit: 1 };
        assert_eq!(error, taken, "{:?}", self.transport);
        // A refusal by datagrams is told only when its attempt is over.
        let limit = if self.transport == Transport::Tcp { 3 } else { 10 };
        assert!(after < Duration::from_secs(limit), "{:?}: after {after:?}", self.transport);
    }
}

#[test]
fn a_second_process_with_a_number_that_is_taken_is_refused_and_disturbs_nobody() {
    for transport in WAYS {
        let meeting = Meeting::new(transport);
        let refused = AtomicBool::new(false);
        std::thread::scope(|s| {
            let (meeting, refused) = (&meeting, &refused);
            let work = move |unit| {
                let d = Domain::join(meeting.options(unit)).unwrap();
                d.barrier().unwrap();
                if unit == 0 {
                    s.spawn(move || {
                        meeting.assert_taken(meeting.intrude());
                        refused.store(true, Ordering::Release);
                    });
                }
                // Unit 0 knows when it is over, and tells the other by mail.
                loop {
                    d.barrier().unwrap_or_else(|e| panic!("{transport:?}: unit {unit} was disturbed: {e}"));
                    let over = unit == 0 && refused.load(Ordering::Acquire);
                    if unit == 0 {
                        d.send(1, 0, [over.into(), 0], b"").unwrap();
                    }
                    if over || unit == 1 && d.recv(Some(0), None).unwrap().words[0] == 1 {
                        break d.barrier().unwrap();
                    }
                }
            };
            for unit in [0, 1] {
                s.spawn(move || work(unit));
            }
        });
    }
}

#[test]
fn who_is_connected_keeps_its_number_while_units_meet_and_who_died_is_replaced() {
    let meeting = Meeting::new(Transport::Tcp);
    std::thread::scope(|s| {
        let join = |unit| {
            let options = meeting.options(unit);
            s.spawn(move || Domain::join(options).and_then(|d| d.barrier()).unwrap());
        };
        join(0);
        // Connected, and slow to say where it runs.
        let first = meeting.bare(1);
        first.introduce(0, meeting.root);
        let end = Instant::now() + Duration::from_secs(20);
        while first.connected() != [0] {
            assert!(Instant::now() < end, "unit 0 was not reached");
            let _ = first.connect(0);
            let _ = first.next_event(Some(Duration::from_millis(10))).unwrap();
        }
        meeting.assert_taken(meeting.intrude());
        assert_eq!(first.connected(), [0], "disturbed");
        drop(first);
        // Unit 0 may notice that a moment later.
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match Domain::join(meeting.options(1)) {
                Ok(d) => break d.barrier().unwrap(),
                Err(error) => assert!(
                    matches!(error, MessageError::NameTaken { .. }) && Instant::now() < end,
                    "{error}"
                ),
            }
        }
    });
}

type Change<'a> = &'a dyn Fn(&mut Options);

/// What unit 1 learns where it differs from unit 0 in this.
fn differs(transport: Transport, change: Change<'_>) -> (MessageError, Duration) {
    let meeting = Meeting::new(transport);
    let over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|s| {
        let mut options = meeting.options(0);
        let ask = over.clone();
        options.interrupt = Some(Arc::new(move || ask.load(Ordering::Acquire)));
        s.spawn(move || drop(Domain::join(options)));
        let mut options = meeting.options(1);
        // By datagrams it would take the time of an attempt, which is longer than this.
        options.open_timeout = Duration::from_secs(if transport == Transport::Tcp { 20 } else { 1 });
        change(&mut options);
        let begun = Instant::now();
        let error = Domain::join(options).map(drop).expect_err("does not belong there");
        over.store(true, Ordering::Release);
        (error, begun.elapsed())
    })
}

fn network(options: &mut Options) -> &mut Network {
    options.network.as_mut().unwrap()
}

#[test]
fn who_has_another_key_trust_or_name_learns_it_at_once() {
    let changes: [(&str, Change<'_>); 3] = [
        ("the peer did not prove that it knows the job's key", &|o| {
            network(o).key = JobKey::fresh().unwrap()
        }),
        ("this side declares the network trusted, the peer not trusted", &|o| network(o).trusted = true),
        ("the peer belongs to another domain", &|o| o.name = unique("another")),
    ];
    for (why, change) in changes {
        let (error, after) = differs(Transport::Tcp, change);
        assert!(matches!(error, MessageError::TurnedAway { unit: 0, .. }), "{error}");
        assert!(error.to_string().ends_with(&format!("turned this unit away: {why}")), "{error}");
        assert!(after < Duration::from_secs(3), "{why}: after {after:?}");
        // An answer by datagrams proves nothing, so it is waited on, and told in the end.
        let (error, _) = differs(Transport::Udp, change);
        assert!(matches!(error, MessageError::Timeout { .. }), "{error}");
        assert!(error.to_string().ends_with(&format!("; the last attempt failed: {why}")), "{error}");
    }
}

#[test]
fn nobody_there_is_told_with_the_address() {
    for transport in WAYS {
        // Nobody answers there, and no other test comes there.
        let silent = UdpSocket::bind("127.0.0.9:0").unwrap();
        let meeting = Meeting { root: silent.local_addr().unwrap(), ..Meeting::new(transport) };
        let open_timeout = Duration::from_millis(300);
        let error = Domain::join(Options { open_timeout, ..meeting.options(1) }).map(drop).unwrap_err();
        assert!(error.to_string().contains(&format!("unit 0 to listen at {}", meeting.root)), "{error}");
        if transport == Transport::Tcp {
            assert!(error.to_string().contains("; the last attempt failed: "), "{error}");
        }
        drop(silent);
    }
}

#[test]
fn a_domain_that_has_only_an_address_is_called_by_it() {
    let meeting = Meeting::new(Transport::Tcp);
    let (open_timeout, root) = (Duration::from_millis(300), meeting.root);
    let name = format!("port-{}", root.port());
    let error = Domain::join(Options { open_timeout, name, ..meeting.options(0) }).map(drop).unwrap_err();
    assert!(error.to_string().starts_with(&format!("domain at {root}: unit 1 did not come")), "{error}");
}
