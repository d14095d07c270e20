//! The shared-memory link between two processes: sleeping, waiting for room, memory that is fetched, sudden
//! death.

mod rig;

use polyduct_message::link::shm::{
    Incoming, Payload, Receiver, Region, RemoteMemory, SendError, Sender, Sizes,
};
use polyduct_message::{ChannelId, HandlerId, Head, Priority};
use polyduct_os::process::PidFd;
use polyduct_os::remote::RemoteReader;
use polyduct_os::socket::Sent;
use polyduct_os::spin::Spin;
use rig::{soon, spawn, End, PATIENCE};

/// What the copies of this program run; a test that does nothing in the first process.
const CHILD: [&str; 4] = ["the_other_process", "--exact", "--nocapture", "--test-threads=1"];
static NO_SPIN: Spin = Spin::never();

fn head(word: u32) -> Head {
    Head { handler: HandlerId(1), args: [word, 2, 3, 4] }
}

fn bytes(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32 ^ seed.wrapping_mul(2_654_435_761) ^ i as u32 >> 9) as u8).collect()
}

/// Waits for `n` messages, asleep.
fn receive(end: &End, receiver: &mut Receiver<Vec<u8>>, n: usize) -> Vec<(u32, Vec<u8>)> {
    let mut got = Vec::new();
    while got.len() < n {
        let mut state = (&mut *receiver, &mut got);
        let some = end.bell.wait(
            &mut state,
            &NO_SPIN,
            soon(),
            |(receiver, got)| {
                let n =
                    receiver.poll(&mut |m| Some(vec![0; m.len as usize]), &mut |m: &Incoming, payload| {
                        let payload = match payload {
                            Payload::Bytes(bytes) => bytes.to_vec(),
                            Payload::Buffer(buffer) => buffer,
                        };
                        got.push((m.head.args[0], payload));
                        true
                    });
                (n.unwrap() > 0).then_some(())
            },
            |(receiver, _)| receiver.ask_for_call(),
        );
        assert!(some.is_some(), "nothing came in {PATIENCE:?}");
    }
    got
}

fn send(end: &End, sender: &mut Sender, word: u32, payload: &[u8]) {
    let mut taken = at_room(end, sender, |s| s.send(head(word), payload)).unwrap();
    while taken < payload.len() {
        taken += at_room(end, sender, |s| s.extend(&payload[taken..])).unwrap();
    }
}

/// Tries again whenever there is room, asleep in between.
fn at_room<T>(
    end: &End,
    mut sender: &mut Sender,
    mut send: impl FnMut(&mut Sender) -> Result<T, SendError>,
) -> Result<T, SendError> {
    let look = |sender: &mut &mut Sender| match send(sender) {
        Err(SendError::Full) => None,
        done => Some(done),
    };
    let sent = end.bell.wait(&mut sender, &NO_SPIN, soon(), look, |sender| sender.ask_for_call());
    sent.expect("room in good time")
}

fn small() -> Sizes {
    Sizes { low_lines: 16, low_bytes: 16 << 10, ..Sizes::default() }
}

#[test]
fn the_other_process() {
    let Some((role, end)) = rig::role() else { return };
    let mut receiver = end.link.receiver().unwrap();
    let mut sender = end.link.sender(ChannelId(0), Priority::Low).unwrap();
    match role.as_str() {
        // Sends back what comes.
        "echo" => loop {
            for (word, payload) in receive(&end, &mut receiver, 1) {
                send(&end, &mut sender, word, &payload);
                if word == u32::MAX {
                    return;
                }
            }
        },
        // Part of a message, then a word on the side, then nothing more: to be killed.
        "half" => {
            sender.send(head(1), &bytes(1, 50)).unwrap();
            sender.begin(head(2), 100_000).unwrap();
            sender.extend(&bytes(2, 9000)).unwrap();
            assert_eq!(end.conn.send(b"ready", &[]).unwrap(), Sent::Done);
            rig::receive(&end.conn);
        }
        // Looks at nothing: to be killed.
        "deaf" => _ = rig::receive(&end.conn),
        // Owns a region and ordinary memory.
        "owner" => {
            let region = Region::create(1 << 20).unwrap();
            let mut plain = bytes(7, 1 << 20);
            let place = [plain.as_mut_ptr() as u64, plain.len() as u64].map(u64::to_le_bytes).concat();
            assert_eq!(end.conn.send(&place, &[region.fd()]).unwrap(), Sent::Done);
            assert_eq!(receive(&end, &mut receiver, 1), [(1, vec![])]);
            let mut found = vec![0; 1 << 20];
            region.get(0, &mut found).unwrap();
            assert!(found[100..700_100] == bytes(1, 700_000) && found[..100] == [0; 100]);
            let now = std::hint::black_box(&mut plain);
            assert!(now[5..300_005] == bytes(2, 300_000) && now[300_005..] == bytes(7, 1 << 20)[300_005..]);
            send(&end, &mut sender, 2, &[]);
            rig::receive(&end.conn);
        }
        other => panic!("no role {other}"),
    }
}

#[test]
fn both_sides_sleep_and_are_woken_for_messages_and_for_room() {
    for sizes in [small(), Sizes::least(), Sizes::default()] {
        let end = spawn("echo", &CHILD, &sizes);
        let mut receiver = end.link.receiver().unwrap();
        let mut sender = end.link.sender(ChannelId(0), Priority::Low).unwrap();
        for n in 0..200 {
            let payload = bytes(n, n as usize * 97 % 5000);
            send(&end, &mut sender, n, &payload);
            assert!(receive(&end, &mut receiver, 1) == [(n, payload)]);
        }
        // More than the ring holds in one go, both ways.
        for (n, len) in [(1, 10_000), (2, 1_000_000), (3, 3_000_001)] {
            let payload = bytes(n, len);
            send(&end, &mut sender, n, &payload);
            assert!(receive(&end, &mut receiver, 1) == [(n, payload)]);
        }
        send(&end, &mut sender, u32::MAX, &[]);
        receive(&end, &mut receiver, 1);
        assert!(end.peer.exited_within(PATIENCE).unwrap());
    }
}

#[test]
fn a_posted_message_is_fetched_without_the_senders_processor() {
    let end = spawn("echo", &CHILD, &small());
    let mut receiver = end.link.receiver().unwrap();
    let mut sender = end.link.sender(ChannelId(0), Priority::Low).unwrap();
    assert!(sender.can_post());
    for len in [0, 1, 100, 128 << 10, (128 << 10) + 1, 5_000_000] {
        let payload = bytes(len as u32, len);
        let ticket = sender.post(head(9), &payload).unwrap();
        let look = |sender: &mut Sender| sender.is_taken(ticket).then_some(());
        let taken = end.bell.wait(&mut sender, &NO_SPIN, soon(), look, |sender| sender.ask_for_call());
        assert!(taken.is_some());
        assert!(receive(&end, &mut receiver, 1) == [(9, payload)], "{len}");
    }
}

#[test]
fn a_sender_killed_within_a_message_leaves_what_it_had_completed() {
    let mut end = spawn("half", &CHILD, &Sizes::default());
    assert_eq!(rig::receive(&end.conn).0, b"ready");
    end.child.as_mut().unwrap().kill().unwrap();
    assert!(end.peer.exited_within(PATIENCE).unwrap());
    end.link.close();
    let mut receiver = end.link.receiver::<Vec<u8>>().unwrap();
    let mut got = Vec::new();
    let mut take = || {
        receiver.poll(&mut |m| Some(vec![0; m.len as usize]), &mut |m, payload| match payload {
            Payload::Bytes(bytes) => {
                got.push((m.head.args[0], bytes.to_vec()));
                true
            }
            Payload::Buffer(_) => panic!("half a message"),
        })
    };
    while take().unwrap() > 0 {}
    assert_eq!(got, [(1, bytes(1, 50))]);
}

#[test]
fn a_sender_asleep_learns_of_its_receivers_death_by_its_own_bell() {
    let mut end = spawn("deaf", &CHILD, &small());
    let mut sender = end.link.sender(ChannelId(0), Priority::Low).unwrap();
    let (link, bell) = (end.link.clone(), end.bell.clone());
    let peer = PidFd::open(end.peer.pid()).unwrap();
    // What watches the process descriptors of all peers.
    let watch = std::thread::spawn(move || {
        assert!(peer.exited_within(PATIENCE).unwrap());
        link.close();
        bell.calls().ring();
    });
    while sender.send(head(0), &[1; 100]).is_ok() {}
    end.child.as_mut().unwrap().kill().unwrap();
    let start = polyduct_os::clock::now();
    let sent = at_room(&end, &mut sender, |s| s.send(head(0), &[1; 100]));
    assert_eq!(sent, Err(SendError::Closed));
    assert!(polyduct_os::clock::now() - start < PATIENCE / 2);
    watch.join().unwrap();
}

#[test]
fn puts_and_gets_reach_the_peers_memory() {
    let end = spawn("owner", &CHILD, &Sizes::default());
    let (place, mut fds) = rig::receive(&end.conn);
    let number = |i: usize| u64::from_le_bytes(place[8 * i..8 * i + 8].try_into().unwrap());
    let region = Region::attach(fds.remove(0), 1 << 20).unwrap();
    let process = RemoteReader::of(PidFd::open(end.peer.pid()).unwrap());
    let plain = RemoteMemory::new(process, number(0), number(1) as usize);

    let (one, two) = (bytes(1, 700_000), bytes(2, 300_000));
    let mut back = vec![0; 700_000];
    region.put(100, &one).unwrap();
    region.get(100, &mut back).unwrap();
    assert!(back == one);
    plain.get(0, &mut back).unwrap();
    assert!(back == bytes(7, 1 << 20)[..700_000]);
    plain.put(5, &two).unwrap();
    plain.get(5, &mut back[..300_000]).unwrap();
    assert!(back[..300_000] == two);

    for (offset, len) in [(1 << 20, 1), (0, (1 << 20) + 1), (usize::MAX, 2), (1 << 19, 1 << 20)] {
        let mut bytes = vec![0; len];
        assert!(region.put(offset, &bytes).is_err() && region.get(offset, &mut bytes).is_err());
        assert!(plain.put(offset, &bytes).is_err() && plain.get(offset, &mut bytes).is_err());
    }
    region.put(1 << 20, &[]).unwrap();

    // The message comes after the bytes.
    let mut receiver = end.link.receiver().unwrap();
    let mut sender = end.link.sender(ChannelId(0), Priority::Low).unwrap();
    send(&end, &mut sender, 1, &[]);
    assert_eq!(receive(&end, &mut receiver, 1), [(2, vec![])]);
}
