//! A unit that meets the others across hosts and ends before those of its host have found it: nobody waits
//! for it until the time to join is over.

mod units;

use bytes::Bytes;
use polyduct_message::config::Config;
use polyduct_message::domain::host_map::HostId;
use polyduct_message::domain::{system, Domain, Network, Options};
use polyduct_message::engine::Send;
use polyduct_message::handshake::VERSION;
use polyduct_message::hash::fnv1a;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, NetEvent, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::{ChannelId, Head, MessageError, Order, Priority};
use polyduct_rig::{free_address, Deaf};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use units::{options, unique};

/// Where the units of a domain meet.
struct Meeting {
    name: String,
    key: JobKey,
    root: SocketAddr,
    /// The host of each unit.
    hosts: Vec<u64>,
}

impl Meeting {
    fn new(hosts: &[u64]) -> Meeting {
        let (key, root) = (JobKey::fresh().unwrap(), free_address());
        Meeting { name: unique("meet"), key, root, hosts: hosts.to_vec() }
    }

    fn units(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// Unit `gone` is lost to a unit that joins: at once, and by name.
    fn loses(&self, unit: u32, gone: u32) {
        let mut options = options(&self.name, unit, self.units());
        let apart = self.hosts[unit as usize];
        options.network = Some(Network { apart, ..Network::new(self.root, self.key.clone()) });
        let begun = Instant::now();
        // Those of other hosts have joined, and learn it there.
        let told = Domain::join(options).and_then(|d| d.barrier());
        let case = format!("unit {gone} of {:?} goes: unit {unit} hears {told:?}", self.hosts);
        assert!(matches!(told, Err(MessageError::PeerLost { unit, .. }) if unit == gone), "{case}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{case} after {:?}", begun.elapsed());
        let words = told.unwrap_err().to_string();
        assert_eq!(words.matches(&format!("unit {gone} is lost")).count(), 1, "{words}");
    }
}

/// Says where it runs, is told that all have come, does `then`, and goes without a word.
fn meet_and_go(meeting: &Meeting, unit: u32, then: impl FnOnce()) {
    meet_at(meeting, unit, None, then);
}

/// The same; says that it listens somewhere else than it does.
fn meet_at(meeting: &Meeting, unit: u32, elsewhere: Option<SocketAddr>, then: impl FnOnce()) {
    let _there = introduce(meeting, unit, elsewhere, &[VERSION], 1);
    then();
}

/// Introduces a unit in these versions, one after the other, until so many answers have come.
fn introduce(
    meeting: &Meeting,
    unit: u32,
    elsewhere: Option<SocketAddr>,
    versions: &[u16],
    answers: usize,
) -> NetEndpoint<Vec<u8>> {
    let Meeting { name, key, root, hosts } = meeting;
    let number = fnv1a(name.bytes());
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let mut config = NetConfig::new(unit, meeting.units(), number, key.clone(), anywhere, Transport::Tcp);
    config.session.channels = 4096;
    config.session.max_payload = Config::default().bytes("message");
    let endpoint = NetEndpoint::start(config, |_, m: &polyduct_message::engine::Incoming| {
        Some(vec![0; m.len.unwrap_or(m.at_least) as usize])
    })
    .unwrap();
    endpoint.introduce(0, *root);
    let introduction = (
        meeting.units(),
        elsewhere.unwrap_or(endpoint.local_addr()),
        HostId::of_this_process(hosts[unit as usize]),
    );
    let payload = Bytes::from(postcard::to_stdvec(&introduction).unwrap());
    let end = Instant::now() + Duration::from_secs(20);
    let (mut versions, mut heard) = (versions.iter().peekable(), 0);
    while heard < answers {
        assert!(Instant::now() < end, "not all have come");
        // It is connected when it is first sent to.
        while let Some(&&version) = versions.peek() {
            let head = Head { handler: system::MEET, args: [version.into(), 0, 0, 0] };
            let (priority, order, payload) = (Priority::High, Order::Ordered, payload.clone());
            if endpoint.send(0, ChannelId(4095), Send { priority, order, head, payload }).is_err() {
                break;
            }
            versions.next();
        }
        if let Some(NetEvent::Message { message, .. }) =
            endpoint.next_event(Some(Duration::from_millis(10))).unwrap()
        {
            // Others that know already may say more.
            heard += usize::from(message.head.handler == system::MEET);
        }
    }
    endpoint
}

#[test]
fn a_unit_that_introduces_itself_again_keeps_its_place() {
    let meeting = Meeting::new(&[1, 2, 3]);
    std::thread::scope(|s| {
        let meeting = &meeting;
        s.spawn(move || meeting.loses(0, 1));
        // The answer to the last, of another version, says that unit 0 has heard the two before.
        let again = introduce(meeting, 1, None, &[VERSION, VERSION, VERSION + 1], 1);
        let late = s.spawn(move || meeting.loses(2, 1));
        while !matches!(again.next_event(Some(Duration::from_secs(20))), Ok(Some(NetEvent::Message { message, .. })) if message.head.handler == system::MEET)
        {
            assert!(!late.is_finished(), "nobody was told that all have come");
        }
    });
}

#[test]
fn who_meets_and_does_not_come_is_lost_at_once() {
    // Which unit goes, and the host of each.
    for (gone, hosts) in [(1, [1, 2, 2]), (2, [1, 2, 2]), (1, [1, 1, 2]), (2, [1, 2, 1]), (1, [1, 1, 1])] {
        let meeting = Meeting::new(&hosts);
        std::thread::scope(|s| {
            let meeting = &meeting;
            s.spawn(move || meet_and_go(meeting, gone, || ()));
            for unit in (0..3).filter(|&unit| unit != gone) {
                s.spawn(move || meeting.loses(unit, gone));
            }
        });
    }
}

#[test]
fn unit_0_tells_of_it_while_it_waits_itself() {
    let meeting = Meeting::new(&[1, 1, 2, 2]);
    let (told, wait) = mpsc::channel();
    std::thread::scope(|s| {
        let meeting = &meeting;
        // Unit 0 waits for this one until unit 3 has heard of the loss of unit 2.
        s.spawn(move || meet_and_go(meeting, 1, || wait.recv_timeout(Duration::from_secs(20)).unwrap()));
        s.spawn(move || meeting.loses(0, 1));
        s.spawn(move || meet_and_go(meeting, 2, || ()));
        s.spawn(move || {
            meeting.loses(3, 2);
            told.send(()).unwrap();
        });
    });
}

#[test]
fn a_loss_that_was_told_reads_like_one_that_was_seen() {
    let meeting = Meeting::new(&[1, 2, 3]);
    std::thread::scope(|s| {
        let meeting = &meeting;
        s.spawn(move || meet_and_go(meeting, 2, || ()));
        // Unit 0 sees it; unit 1, which has no connection to it, is told.
        for unit in [0, 1] {
            s.spawn(move || {
                let network =
                    Network { apart: unit.into(), ..Network::new(meeting.root, meeting.key.clone()) };
                let network = Some(network);
                let d = Domain::join(Options { network, ..options(&meeting.name, unit, 3) }).unwrap();
                let reason = "its connection ended".to_owned();
                let lost = Err(MessageError::PeerLost { unit: 2, reason });
                assert_eq!(d.recv(None, None).map(drop), lost, "unit {unit}");
            });
        }
    });
}

/// A firewall that drops what comes to a port lets nobody know: the text has to say which port it is.
#[test]
fn who_cannot_be_reached_is_named_with_its_address() {
    let deaf = Deaf::new();
    let mut early = options("blocked", 1, 2);
    early.open_timeout = Duration::from_secs(1);
    early.network = Some(Network::new(deaf.at(), JobKey::fresh().unwrap()));
    let told = Domain::join(early).map(drop).unwrap_err();
    assert!(matches!(told, MessageError::Timeout { .. }), "{told}");
    let expected =
        format!("unit 0 to listen at {}; nothing comes back from there: is it blocked?", deaf.at());
    assert!(told.to_string().ends_with(&expected), "{told}");

    // Unit 1 has met the others, and can be reached by none of them.
    let meeting = Meeting::new(&[1, 2, 3]);
    let (over, wait) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        let (meeting, at) = (&meeting, deaf.at());
        let stay = move || {
            let _ = wait.recv_timeout(Duration::from_secs(30));
        };
        s.spawn(move || meet_at(meeting, 1, Some(at), stay));
        let join = move |unit: u32| {
            let mut options = options(&meeting.name, unit, 3);
            options.network = Some(Network {
                apart: meeting.hosts[unit as usize],
                ..Network::new(meeting.root, meeting.key.clone())
            });
            Domain::join(options).unwrap()
        };
        s.spawn(move || drop(join(0).recv(Some(2), None)));
        let d = join(2);
        let lost = d.send(1, 0, [0; 2], b"you").and_then(|()| d.recv(Some(1), None).map(drop)).unwrap_err();
        let expected =
            format!("unit 1 is lost: it cannot be reached at {at}: a connection did not come within");
        assert!(lost.to_string().starts_with(&expected), "{lost}");
        drop(over);
    });
}
