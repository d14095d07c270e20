//! Viewers over real sockets: fast, slow, stopped, hostile.

mod common;

use bytes::Bytes;
use common::*;
use polyduct_display::limits::{MAX_CONNECTIONS, MAX_UNACKNOWLEDGED, MAX_VIEWERS};
use polyduct_display::{Owner, Reduce, View, ViewInfo};
use polyduct_layout::ElemType;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use tungstenite::Message;

#[test]
fn several_viewers_see_every_step_that_they_keep_up_with() {
    let display = listen();
    let owners = Some(vec![Owner { unit: 0, boxes: vec![(vec![0, 0], vec![4, 5])] }]);
    let view = ViewInfo { owners, ..info("u", &[4, 5]) };
    let show = display.enter("a/b", vec![view]).unwrap();
    let mut pages: Vec<Page> = (0..4).map(|_| Page::open(&display, "/a/b")).collect();
    for page in &mut pages {
        let expected = json!({"type": "hello", "name": "a/b", "group": null, "views": [{"name": "u",
            "shape": [4, 5], "dtype": "f4", "owners": [{"unit": 0, "boxes": [[[0, 0], [4, 5]]]}]}]});
        assert_eq!(page.text(), expected);
        assert_eq!(page.text(), json!({"type": "state", "state": "running", "why": ""}));
    }
    until_wants(&show, |w| w.viewers == 4);
    for step in 0..50 {
        show.publish(frame(step, &[4, 5])).unwrap();
        for page in &mut pages {
            let got = page.frame();
            assert_eq!((got.step(), got.values(0)), (step, vec![step as f32; 20]));
            assert_eq!(got.head["values"]["t"], step as f64 / 4.0);
            page.ack(&got);
        }
    }
    drop(pages);
    until_wants(&show, |w| w.viewers == 0);
    let status = &display.status().names[0];
    assert_eq!((status.frames, status.dropped, status.viewers), (50, 0, 0));
    assert!(status.bytes > 4 * 50 * 80);
}

/// Memory that counts itself.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_stopped_viewer_delays_nobody_and_holds_two_frames() {
    let display = listen();
    let shape = [512, 1024];
    let show = enter(&display, "a", &shape);
    let mut stopped = Page::look(&display, "/a");
    let mut running = Page::look(&display, "/a");
    until_wants(&show, |w| w.viewers == 2);
    let alive = Arc::new(AtomicUsize::new(0));
    let mut most = 0;
    for step in 0..200 {
        alive.fetch_add(1, Ordering::SeqCst);
        let data = (step as f32).to_le_bytes().repeat(512 * 1024);
        show.publish(frame_of(step, &shape, Bytes::from_owner(Counted(data, alive.clone())))).unwrap();
        let got = running.until(step);
        assert_eq!(got.values(0)[512 * 1024 - 1], step as f32);
        most = most.max(alive.load(Ordering::SeqCst));
    }
    // The newest; two for each viewer, the last of which may just be being let go; and nothing else.
    assert!(most <= 2 + 2 * MAX_UNACKNOWLEDGED, "{most} frames in memory");
    // When it goes on, it gets the two that were on the way, and then the newest.
    let (first, second) = (stopped.frame(), stopped.frame());
    assert_eq!((first.step(), second.step()), (0, 1));
    stopped.ack(&second);
    assert_eq!(stopped.until(199).values(0)[0], 199.0);
    stopped.say(json!({"type": "pause"}));
    until_wants(&show, |w| w.viewers == 1);
    let status = &display.status().names[0];
    assert_eq!((status.dropped, status.viewers, status.looking), (197, 2, 1));
}

#[test]
fn hostile_clients_are_closed_and_a_viewer_beside_them_sees_every_step() {
    let display = listen();
    let show = enter(&display, "a", &[8]);
    let to = display.socket_address();
    let mut page = Page::look(&display, "/a");
    let mut step = 0;
    let mut goes_on = |page: &mut Page| {
        step += 1;
        show.publish(frame(step, &[8])).unwrap();
        assert_eq!(page.until(step).values(0), [step as f32; 8]);
    };
    goes_on(&mut page);

    // Half a handshake, and nothing more.
    let mut half = connect(to);
    let text = handshake("/a", "");
    half.write_all(&text.as_bytes()[..text.len() / 2]).unwrap();
    goes_on(&mut page);

    // Frames that announce more than there can be, without a mask, of unknown kinds, and text that is none.
    let frames: [(&[u8], u16); 6] = [
        (&[0x82, 0xff, 0, 0, 0, 0xff, 0, 0, 0, 0, 1, 2, 3, 4], 1009),
        (&[0x81, 0xfe, 0xff, 0xff, 1, 2], 0),
        (&[0x81, 0x02, b'h', b'i'], 1002),
        (&[0x83, 0x80, 0, 0, 0, 0], 1002),
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff], 1002),
        (&[0x81, 0x82, 0, 0, 0, 0, b'h', b'i'], 1008),
    ];
    let mut open = Vec::new();
    for (bytes, code) in frames {
        let mut bad = Page::look(&display, "/a");
        bad.0.get_mut().write_all(bytes).unwrap();
        if code > 0 {
            assert_eq!(bad.close_code(), code, "{bytes:x?}");
        } else {
            open.push(bad); // more of it may come
        }
        goes_on(&mut page);
    }

    // One that sends for ever: it is closed, whenever its writing finds that out.
    let mut flood = Page::look(&display, "/a");
    let mut sent = 0;
    while flood.0.send(Message::text(json!({"type": "play"}).to_string())).is_ok() {
        sent += 1;
        assert!(sent < 1_000_000, "a flood is taken");
    }
    goes_on(&mut page);

    // Bytes of chance, to the server and to a websocket.
    let mut state = 88172645463325252u64;
    let mut noise = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    for round in 0..50 {
        let bytes: Vec<u8> = (0..500).map(|_| noise()).collect();
        let mut stream = connect(to);
        if round % 2 == 0 {
            stream.write_all(handshake("/a", "").as_bytes()).unwrap();
        }
        // It may be closed before all is written.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        if let Err(e) = stream.read_to_end(&mut rest) {
            assert_eq!(e.kind(), ErrorKind::ConnectionReset, "round {round}");
        }
    }
    goes_on(&mut page);
    drop((half, open));
    until_wants(&show, |w| w.viewers == 1);
}

#[test]
fn too_many_connections_and_viewers_are_told_so() {
    let display = listen();
    let show = enter(&display, "a", &[8]);
    let to = display.socket_address();
    let pages: Vec<Page> = (0..MAX_VIEWERS).map(|_| Page::look(&display, "/a")).collect();
    let refused = send(to, handshake("/a", ""));
    assert_eq!((refused.status, refused.text()), (503, "there are too many viewers\n"));
    assert_eq!(get(&display, "/a").status, 200);
    until_wants(&show, |w| w.viewers == MAX_VIEWERS);

    // Connections that are told that they are too many do not count, and those of the requests before may
    // still be there.
    let idle: Vec<_> = (2 * MAX_VIEWERS..MAX_CONNECTIONS).map(|_| connect(to)).collect();
    let full = Response::read(&mut connect(to));
    assert_eq!((full.status, full.text()), (503, "there are too many connections\n"));
    assert!(display.status().refused > 0);

    // With one gone, another is let in.
    drop(pages);
    until_wants(&show, |w| w.viewers == 0);
    let mut page = Page::look(&display, "/a");
    show.publish(frame(3, &[8])).unwrap();
    assert_eq!(page.frame().step(), 3);
    drop(idle);
}

#[test]
fn a_body_is_one_viewers_who_alone_knows_its_id_and_both_end_together() {
    let display = listen();
    let show = enter(&display, "a", &[8]);
    let _b = enter(&display, "b", &[8]);
    let to = display.socket_address();
    let (alone, id) = Page::speak(&display, "/a");
    let id = &*id;
    // Whoever has no body is not looking.
    assert_eq!((id.len(), show.wants().viewers), (32, 0));
    let wrong = [frames("/a", ""), frames("/a", &"0".repeat(32)), frames("/b", id), frames("/a", &id[1..])];
    for request in &wrong {
        assert_eq!(send(to, request).status, 403, "{request}");
    }
    assert_eq!(send(to, frames("/c", id)).status, 404);
    let foreign = "Host: localhost\r\nOrigin: http://evil.example";
    assert_eq!(send(to, frames("/a", id).replace("Host: localhost", foreign)).status, 403);
    let mut body = connect(to);
    body.write_all(frames("/a", id).as_bytes()).unwrap();
    assert!(read_head(&mut body).starts_with("HTTP/1.1 200 "));
    until_wants(&show, |w| w.viewers == 1);
    // A second one is refused, and the first goes on.
    assert_eq!(send(to, frames("/a", id)).status, 403);
    drop(alone);
    read_all(&mut body);
    until_wants(&show, |w| w.viewers == 0);

    let mut page = Page::look(&display, "/a");
    page.1.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(page.close_code(), 1001);
    until_wants(&show, |w| w.viewers == 0);
}

#[test]
fn what_viewers_want_is_made_for_them_and_nobody_else() {
    let display = listen();
    let show = enter(&display, "a", &[100, 100]);
    let view = |lo: u64, value: f32| View {
        shape: vec![1, 1],
        full: vec![100, 100],
        lo: vec![lo, lo],
        hi: vec![lo + 50, lo + 50],
        reduce: Some(Reduce::Mean),
        ..View::whole("u", ElemType::F32, &[1, 1], Bytes::copy_from_slice(&value.to_le_bytes()))
    };
    let publish = |step: u64, windows: Vec<View>| {
        let mut frame = frame_of(step, &[1, 1], Bytes::from_static(&[0; 4]));
        frame.views = [vec![view(0, -1.0)], windows].concat();
        show.publish(frame).unwrap();
    };
    let want = |lo: u64| {
        json!({"type": "want", "view": "u", "axes": [0, 1], "lo": [lo, lo], "hi": [lo + 50, lo + 50],
            "pixels": [1, 1], "slice": null, "project": null, "reduce": "mean"})
    };
    let mut plain = Page::look(&display, "/a");
    let mut one = Page::look(&display, "/a");
    let mut two = Page::look(&display, "/a");
    one.say(want(10));
    two.say(want(20));
    let wants = until_wants(&show, |w| w.viewers == 3 && w.windows.len() == 2);
    let made = |wants: &polyduct_display::Wants| -> Vec<View> {
        let of = |(id, want): &(_, polyduct_display::Want)| View {
            for_want: Some(*id),
            ..view(want.lo[0], want.lo[0] as f32)
        };
        wants.windows.iter().map(of).collect()
    };
    publish(1, made(&wants));
    for (page, value) in [(&mut plain, -1.0), (&mut one, 10.0), (&mut two, 20.0)] {
        let got = page.frame();
        assert_eq!((got.step(), got.values(0)), (1, vec![value]));
        assert_eq!(got.head["views"].as_array().unwrap().len(), 1);
        assert_eq!(got.head["views"][0]["reduce"], "mean");
        page.ack(&got);
    }
    // What is there already comes at once to one more who wants it.
    plain.say(want(20));
    let got = plain.frame();
    assert_eq!((got.step(), got.values(0)), (1, vec![20.0]));
    assert_eq!(show.wants().windows, wants.windows);

    one.say(json!({"type": "pause"}));
    until_wants(&show, |w| w.viewers == 2 && w.windows.len() == 1);
    drop((plain, two));
    until_wants(&show, |w| w.viewers == 0 && w.windows.is_empty());
    publish(2, vec![]);
    one.say(json!({"type": "play"}));
    assert_eq!(one.frame().values(0), [-1.0]);
    until_wants(&show, |w| w.viewers == 1 && w.windows.len() == 1);
}

#[test]
fn viewers_stay_when_a_program_dies_and_see_the_next() {
    let display = listen();
    let show = enter(&display, "a", &[2]);
    let mut page = Page::look(&display, "/a");
    show.publish(frame(7, &[2])).unwrap();
    let got = page.frame();
    show.lost("unit 3 was killed");
    assert_eq!(page.text(), json!({"type": "state", "state": "lost", "why": "unit 3 was killed"}));
    // Who comes now sees the last frame, and what happened.
    let mut late = Page::open(&display, "/a");
    assert_eq!((&late.text()["type"], &late.text()["state"]), (&json!("hello"), &json!("lost")));
    assert_eq!(late.frame().step(), 7);

    let again = enter(&display, "a", &[3]);
    for page in [&mut page, &mut late] {
        let hello = page.text();
        assert_eq!((&hello["type"], &hello["views"][0]["shape"]), (&json!("hello"), &json!([3])));
        assert_eq!(page.text()["state"], "running");
    }
    until_wants(&again, |w| w.viewers == 2);
    again.publish(frame(0, &[3])).unwrap();
    let next = page.frame();
    assert!(next.step() == 0 && next.id() > got.id());
    drop(again);
    assert_eq!(page.text()["state"], "ended");
    assert_eq!(get(&display, "/a.json").json()["step"], 0);
}

#[test]
fn the_end_of_the_display_comes_after_what_was_on_the_way() {
    let display = listen();
    let shape = [1 << 10, 1 << 10];
    let show = enter(&display, "a", &shape);
    let mut page = Page::look(&display, "/a");
    let mut slow = Page::look(&display, "/a");
    until_wants(&show, |w| w.viewers == 2);
    for step in 1..=5 {
        show.publish(frame(step, &shape)).unwrap();
        if step < 5 {
            page.until(step);
        }
    }
    drop(show);
    let to = display.socket_address();
    let reader = std::thread::spawn(move || {
        assert_eq!(page.frame().values(0), vec![5.0; 1 << 20]);
        assert_eq!(page.text()["state"], "ended");
        assert!(page.is_through());
        assert_eq!(page.close_code(), 1001);
        // Who was two frames behind has the last one, too.
        let (first, second) = (slow.frame(), slow.frame());
        assert!(first.step() < second.step() && second.step() < 5);
        slow.ack(&second);
        assert_eq!(slow.frame_past_texts().values(0)[0], 5.0);
        assert!(slow.is_through());
        assert_eq!(slow.close_code(), 1001);
    });
    let clone = display.clone();
    drop(display);
    assert!(std::net::TcpStream::connect(to).is_ok(), "one handle is left");
    drop(clone);
    assert!(std::net::TcpStream::connect(to).is_err());
    reader.join().unwrap();
}
