//! A viewer without a socket.

use super::*;
use crate::hub::Hub;
use crate::limits::MAX_CLIENT_MESSAGES;
use crate::wire::State;
use crate::{Frame, View};
use bytes::Bytes;
use polyduct_layout::ElemType;
use serde_json::json;
use std::time::UNIX_EPOCH;

/// The other side of a viewer, and the place that it looks at.
struct Bench {
    hub: Hub,
    program: u64,
    viewer: Viewer,
    /// What goes out by the viewer's websocket, and by its body.
    out: Outbox,
    body: Outbox,
    client: WebSocketContext,
    now: Duration,
}

impl Bench {
    fn new() -> Bench {
        let hub = Hub::new().unwrap();
        let (program, _) = hub.enter("a", views()).unwrap();
        let mut viewer = Viewer::new("a".into(), "7".into(), Duration::ZERO);
        assert!(viewer.awaits("a", "7") && !viewer.awaits("a", "8") && !viewer.awaits("b", "7"));
        viewer.body = Some((1, 1));
        assert!(!viewer.awaits("a", "7"), "there is one body");
        Bench {
            hub,
            program,
            viewer,
            out: Outbox::default(),
            body: Outbox::default(),
            client: WebSocketContext::new(Role::Client, None),
            now: Duration::ZERO,
        }
    }

    fn publish(&mut self, step: u64) {
        let data = Bytes::from(vec![step as u8; 4]);
        let views = vec![View::whole("u", ElemType::U8, &[2, 2], data)];
        let frame = Frame { step, time: UNIX_EPOCH, values: Default::default(), views, exact: Vec::new() };
        self.hub.publish("a", self.program, frame).unwrap();
    }

    fn offer(&mut self) -> bool {
        self.viewer.offer(self.hub.lock().all.get_mut("a").unwrap(), &mut self.body)
    }

    /// What it is shown when it reads all.
    fn see(&mut self) -> Vec<String> {
        let bytes = drain(&mut self.body);
        let (mut rest, mut all) = (&bytes[..], Vec::new());
        while let Some((len, behind)) = rest.split_first_chunk() {
            let (message, behind) = behind.split_at(u64::from_le_bytes(*len) as usize);
            let len = u32::from_le_bytes(message[..4].try_into().unwrap()) as usize;
            let head: serde_json::Value = serde_json::from_slice(&message[4..4 + len]).unwrap();
            all.push(match head["type"].as_str() {
                Some("frame") => format!("frame {} step {}", head["id"], head["step"]),
                _ => head.to_string(),
            });
            rest = behind;
        }
        all
    }

    /// What its websocket brings when it reads all.
    fn read(&mut self) -> Vec<String> {
        let bytes = drain(&mut self.out);
        let mut memory = Memory { input: &bytes, output: Vec::new() };
        let mut all = Vec::new();
        while let Ok(message) = self.client.read(&mut memory) {
            all.push(match message {
                Message::Text(text) => text.to_string(),
                Message::Close(Some(close)) => format!("close {}", u16::from(close.code)),
                Message::Ping(_) => "ping".into(),
                other => format!("{other:?}"),
            });
        }
        all
    }

    fn say(&mut self, message: Message) -> bool {
        let mut memory = Memory::default();
        self.client.write(&mut memory, message).unwrap();
        self.client.flush(&mut memory).unwrap();
        self.viewer.handle_input(&memory.output, self.now, &mut self.out)
    }

    fn say_json(&mut self, message: serde_json::Value) -> bool {
        self.say(Message::text(message.to_string()))
    }
}

fn drain(out: &mut Outbox) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !out.is_empty() {
        out.write_to(&mut bytes).unwrap();
    }
    bytes
}

fn views() -> Vec<ViewInfo> {
    vec![ViewInfo { name: "u".into(), shape: vec![2, 2], elem: ElemType::U8, owners: None }]
}

#[test]
fn a_viewer_is_told_who_is_there_and_gets_the_newest() {
    let mut bench = Bench::new();
    bench.viewer.greet(&mut bench.out);
    assert_eq!(bench.read(), [r#"{"id":"7","type":"viewer"}"#]);
    bench.publish(10);
    bench.publish(11);
    assert!(bench.offer() && !bench.offer());
    let all = bench.see();
    assert!(all[0].contains("\"hello\"") && all[1].contains("\"running\""), "{all:?}");
    assert_eq!(all[2..], ["frame 2 step 11"]);
    bench.publish(12);
    bench.offer();
    bench.publish(13);
    bench.publish(14);
    bench.offer();
    assert_eq!(bench.see(), ["frame 3 step 12"]);
    assert!(!bench.say_json(json!({"type": "ack", "id": 2})));
    bench.offer();
    assert_eq!(bench.see(), ["frame 5 step 14"]);
    let places = bench.hub.lock();
    let place = &places.all["a"];
    assert_eq!((place.shown, place.dropped), (1, 1));
}

#[test]
fn who_pauses_gets_nothing_and_then_the_newest_at_once() {
    let mut bench = Bench::new();
    bench.offer();
    bench.see();
    assert!(bench.say_json(json!({"type": "pause"})) && !bench.viewer.is_looking());
    for step in 0..5 {
        bench.publish(step);
        bench.offer();
    }
    assert!(bench.body.is_empty());
    assert!(bench.say_json(json!({"type": "play"})) && bench.viewer.is_looking());
    bench.offer();
    assert_eq!(bench.see(), ["frame 5 step 4"]);
    assert_eq!(bench.hub.lock().all["a"].dropped, 0);
}

#[test]
fn who_takes_nothing_holds_two_frames_and_few_texts_however_often_programs_come() {
    let mut bench = Bench::new();
    bench.offer();
    bench.see();
    for n in 0..50 {
        for _ in 0..3 {
            bench.publish(n);
            bench.offer();
        }
        bench.hub.leave("a", bench.program, State::Lost("killed".into()));
        // At times the next is there before anybody is told.
        if n % 2 > 0 {
            bench.offer();
        }
        bench.program = bench.hub.enter("a", views()).unwrap().0;
        bench.offer();
    }
    assert!(bench.body.frames() <= 2 && bench.body.texts() <= 2);
    bench.publish(99);
    bench.see();
    bench.offer();
    let all = bench.see();
    assert!(all[0].contains("hello") && all[1].contains("running"), "{all:?}");
    assert_eq!(all[2..], ["frame 151 step 99"]);
}

#[test]
fn what_is_wanted_counts_as_far_as_the_program_has_it() {
    let mut bench = Bench::new();
    bench.offer();
    let want = |hi: u64| {
        json!({"type": "want", "view": "u", "axes": [0, 1], "lo": [0, 0], "hi": [hi, 1], "pixels": [9, 9],
            "reduce": "max"})
    };
    assert!(!bench.say_json(want(3)), "beyond the array");
    assert!(bench.say_json(want(2)) && !bench.say_json(want(2)) && bench.say_json(want(1)));
    assert_eq!(bench.viewer.wants().count(), 1);
    assert!(!bench.viewer.is_closing());
}

#[test]
fn who_breaks_the_rules_is_told_and_closed() {
    let flood = |bench: &mut Bench| {
        (0..=MAX_CLIENT_MESSAGES).any(|_| bench.say_json(json!({"type": "ack", "id": 1})))
    };
    type Act = fn(&mut Bench) -> bool;
    let acts: [(&str, Act, u16); 5] = [
        ("garbage", |b| b.say(Message::text("hello?")), 1008),
        ("binary", |b| b.say(Message::binary(vec![1, 2])), 1003),
        ("too long", |b| b.say(Message::text("x".repeat(MAX_CLIENT_BYTES + 1))), 1009),
        ("without a mask", |b| b.viewer.handle_input(&[0x81, 1, b'x'], Duration::ZERO, &mut b.out), 1002),
        (
            "a huge frame",
            |b| {
                b.viewer.handle_input(&[0x81, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], b.now, &mut b.out)
            },
            1009,
        ),
    ];
    for (what, act, code) in acts {
        let mut bench = Bench::new();
        assert!(act(&mut bench) && bench.viewer.is_closing(), "{what}");
        assert_eq!(bench.read(), [format!("close {code}")], "{what}");
    }
    let mut bench = Bench::new();
    assert!(flood(&mut bench) && bench.read() == ["close 1008"]);
}

#[test]
fn who_pings_without_reading_is_closed_before_that_costs_much() {
    let mut bench = Bench::new();
    let mut most = 0;
    for n in 0..100_000u64 {
        bench.now = Duration::from_millis(n * 6);
        if bench.say(Message::Ping(vec![0; 125].into())) {
            break;
        }
        most = most.max(bench.out.text_bytes());
    }
    assert!(bench.viewer.is_closing() && most <= MAX_SMALL_BYTES, "{most}");
}

#[test]
fn who_draws_as_fast_as_frames_come_is_no_flood() {
    let mut bench = Bench::new();
    for id in 1..=u64::from(2 * MAX_CLIENT_MESSAGES) {
        bench.publish(id);
        bench.offer();
        bench.see();
        assert!(!bench.say_json(json!({"type": "ack", "id": id})), "{id}");
    }
    assert!(!bench.viewer.is_closing());
}

#[test]
fn a_silent_viewer_is_pinged_and_then_given_up() {
    let mut bench = Bench::new();
    let at = |bench: &mut Bench, s: u64| bench.viewer.handle_timeout(Duration::from_secs(s), &mut bench.out);
    assert_eq!(bench.viewer.deadline(), PING_INTERVAL);
    assert!(at(&mut bench, 9) && bench.out.is_empty());
    assert!(at(&mut bench, 10) && at(&mut bench, 11));
    assert_eq!(bench.read(), ["ping"]);
    assert_eq!(bench.viewer.deadline(), Duration::from_secs(20));
    // It answers, and so the time counts anew.
    bench.now = Duration::from_secs(12);
    bench.say(Message::Pong(Bytes::new()));
    assert!(at(&mut bench, 41));
    assert_eq!(bench.viewer.deadline(), Duration::from_secs(42));
    assert!(!at(&mut bench, 42));
    // A large frame on a slow line is life, too.
    bench.viewer.handle_progress(Duration::from_secs(40));
    assert!(at(&mut bench, 69) && !at(&mut bench, 70));
}

#[test]
fn a_close_is_answered() {
    let mut bench = Bench::new();
    assert!(bench.say(Message::Close(None)) && bench.viewer.is_closing());
    assert!(!bench.out.is_empty());
    bench.read();
    let mut other = Bench::new();
    other.viewer.handle_end("it ends", &mut other.out);
    assert_eq!(other.read(), ["close 1001"]);
}
