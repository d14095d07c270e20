//! What requests get.

mod common;

use bytes::Bytes;
use common::*;
use polyduct_display::limits::{HEAD_TIMEOUT, MAX_HEAD_BYTES};
use polyduct_display::{Display, DisplayError, Frame, Options, View, ViewInfo};
use polyduct_layout::ElemType;
use std::io::{Read, Write};
use std::time::{Instant, SystemTime};

#[test]
fn names_lead_to_the_page_and_the_only_one_is_shown_at_once() {
    let display = listen();
    assert_eq!(get(&display, "/").status, 200);
    let nothing = get(&display, "/a");
    assert_eq!((nothing.status, nothing.text()), (404, "nothing is shown here yet\n"));

    let _a = enter(&display, "a/ü", &[2]);
    let only = get(&display, "/");
    assert_eq!((only.status, only.header("Location")), (302, Some("/a/%C3%BC")));
    let page = get(&display, "/a/%C3%BC");
    assert_eq!((page.status, page.header("Content-Type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.header("Content-Security-Policy").unwrap().starts_with("default-src 'none'; "));
    assert!(page.text().starts_with("<!DOCTYPE html>") && page.text().ends_with("</html>\n"));

    let _b = enter(&display, "b", &[2]);
    assert_eq!(get(&display, "/").status, 200);
    let list = get(&display, "/c");
    assert_eq!(list.status, 404);
    assert!(list.text().ends_with("/a/%C3%BC\n/b\n"), "{}", list.text());
    assert!(display.address("a/ü").ends_with("/a/%C3%BC"));
}

#[test]
fn the_newest_frame_comes_in_three_forms() {
    let display = listen();
    let bf16 = ViewInfo { name: "w w".into(), shape: vec![3], elem: ElemType::Bf16, owners: None };
    let show = display.enter("run", vec![info("u", &[2, 3]), bf16]).unwrap();
    for form in ["png", "npy", "json"] {
        let none = get(&display, &format!("/run.{form}"));
        assert_eq!((none.status, none.header("Retry-After")), (503, Some("1")));
    }
    let bytes: Vec<u8> = (0..6).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let mut frame = frame_of(5, &[2, 3], bytes.clone().into());
    frame.views.push(View::whole("w w", ElemType::Bf16, &[3], Bytes::from_static(&[0, 64, 0, 192, 0, 0])));
    show.publish(frame).unwrap();

    let npy = get(&display, "/run.npy");
    assert_eq!((npy.status, &npy.body[..6], &npy.body[128..]), (200, &b"\x93NUMPY"[..], &bytes[..]));
    let other = get(&display, "/run.npy?view=w%20w");
    assert_eq!(&other.body[other.body.len() - 6..], &[0, 64, 0, 192, 0, 0]);
    let unknown = get(&display, "/run.npy?view=z");
    assert!(unknown.status == 404 && unknown.text().contains("\n/u\n/w%20w\n"), "{}", unknown.text());

    let json = get(&display, "/run.json").json();
    assert_eq!((&json["step"], &json["values"]["t"]), (&5.into(), &1.25.into()));
    assert_eq!(json["views"][0]["max"], 5.0);
    assert_eq!((&json["views"][1]["min"], &json["views"][1]["dtype"]), (&(-2.0).into(), &"bf16".into()));

    for _ in 0..2 {
        let png = get(&display, "/run.png");
        assert_eq!(png.header("Content-Type"), Some("image/png"));
        let mut reader = png::Decoder::new(std::io::Cursor::new(png.body)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.height, info.width, pixels[3]), (2, 3, 255));
    }

    let head = send(display.socket_address(), "HEAD /run.npy HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((head.status, head.header("Content-Length"), head.body.len()), (200, Some("152"), 0));

    let status = get(&display, "/status.json").json();
    let name = &status["names"][0];
    assert_eq!((&name["name"], &name["step"], &name["state"]), (&"run".into(), &5.into(), &"running".into()));
    assert_eq!(name["views"][0], serde_json::json!({"name": "u", "shape": [2, 3], "dtype": "f4"}));
    assert_eq!(status, {
        let mut now = serde_json::to_value(display.status()).unwrap();
        now["connections"] = status["connections"].clone();
        now
    });
}

#[test]
fn a_large_answer_reaches_a_slow_reader_whole() {
    let display = listen();
    let shape = [1 << 10, 6 << 10];
    let show = enter(&display, "big", &shape);
    let bytes: Vec<u8> = (0..shape[0] * shape[1]).flat_map(|n| (n as u32).to_le_bytes()).collect();
    let bytes = Bytes::from(bytes);
    show.publish(frame_of(1, &shape, bytes.clone())).unwrap();
    let mut stream = connect(display.socket_address());
    stream.write_all(b"GET /big.npy HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 200 "));
    // Others are answered, and frames go on, while that one does not read.
    for step in 2..5 {
        show.publish(frame(step, &shape)).unwrap();
        assert_eq!(get(&display, "/status.json").json()["names"][0]["step"], step);
    }
    let mut all = Vec::new();
    let mut piece = vec![0; 100_000];
    loop {
        let n = stream.read(&mut piece).unwrap();
        if n == 0 {
            break;
        }
        all.extend_from_slice(&piece[..n]);
    }
    assert!(all.ends_with(&bytes), "{} bytes", all.len());
}

#[test]
fn who_has_no_token_or_comes_by_another_name_is_refused() {
    let display = listen();
    let _show = enter(&display, "a", &[2]);
    let to = display.socket_address();
    for (host, status) in [("localhost:1", 200), ("127.0.0.1", 200), ("evil.example", 403), ("10.0.0.1", 403)]
    {
        assert_eq!(send(to, format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n")).status, status, "{host}");
    }
    assert_eq!(send(to, "GET /a HTTP/1.1\r\n\r\n").status, 403);
    assert_eq!(send(to, handshake("/a", "Origin: http://evil.example\r\n")).status, 403);
    assert_eq!(send(to, handshake("/a", "Origin: null\r\n")).status, 403);
    assert_eq!(send(to, handshake("/b", "")).status, 404);
    assert_eq!(send(to, handshake("/a", "").replace(": 13", ": 8")).status, 426);

    let token = "00112233445566778899aabbccddeeff";
    let closed = Display::listen(&Options { token: Some(token.into()), ..Options::default() }).unwrap();
    let _show = enter(&closed, "a", &[2]);
    let to = closed.socket_address();
    for path in ["/", "/a", "/a?token=", "/a?token=00112233445566778899aabbccddeefe", "/status.json", "/x"] {
        let refused = send(to, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(refused.status == 403 && !refused.text().contains(token), "{path}");
    }
    assert_eq!(send(to, handshake("/a", "Origin: http://localhost\r\n")).status, 403);
    let redirect = get(&closed, &format!("/?token={token}"));
    assert_eq!(redirect.header("Location"), Some(&*format!("/a?token={token}")));
    assert!(closed.address("a").ends_with(&format!("/a?token={token}")));
    let socket = handshake("/a", "").replace("/ws", &format!("/ws?token={token}"));
    let mut stream = connect(to);
    stream.write_all(socket.as_bytes()).unwrap();
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 101 "));
}

#[test]
fn where_others_can_come_a_random_token_is_needed() {
    let all = Options { host: Some("0.0.0.0".into()), ..Options::default() };
    let [one, two] = [(); 2].map(|()| Display::listen(&all).unwrap());
    let token =
        |display: &Display| display.address("a").split_once("?token=").map(|(_, t)| t.to_owned()).unwrap();
    assert!(token(&one).len() == 32 && token(&one) != token(&two));
    let to = ([127, 0, 0, 1], one.socket_address().port()).into();
    assert_eq!(send(to, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 403);
    let with = format!("GET /?token={} HTTP/1.1\r\nHost: any.example\r\n\r\n", token(&one));
    assert_eq!(send(to, with).status, 200);
}

#[test]
fn what_is_no_request_is_told_so() {
    let display = listen();
    let to = display.socket_address();
    assert_eq!(send(to, "\x16\x03\x01\x02\x00\x01\x00\x01").status, 400);
    assert_eq!(send(to, "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n").header("Allow"), Some("GET, HEAD"));
    let huge = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(MAX_HEAD_BYTES));
    assert_eq!(send(to, huge).status, 431);
    // A byte at a time is as good as all at once.
    let mut stream = connect(to);
    for byte in b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(Response::read(&mut stream).status, 200);
}

#[test]
fn half_a_head_is_given_up_after_its_time() {
    let display = listen();
    let mut silent = connect(display.socket_address());
    let mut half = connect(display.socket_address());
    let start = Instant::now();
    half.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
    assert_eq!(Response::read(&mut half).status, 408);
    assert_eq!(Response::read(&mut silent).status, 408);
    assert!(start.elapsed() + HEAD_TIMEOUT / 10 >= HEAD_TIMEOUT, "{:?}", start.elapsed());
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let display = listen();
    let _a = enter(&display, "a", &[2]);
    let taken = display.enter("a", vec![info("u", &[2])]).err().unwrap();
    assert!(matches!(taken, DisplayError::NameTaken { .. }), "{taken}");
    for name in ["", "a//b", "/a", "..", "a/../b", "status.json", "a\nb", &"x".repeat(201)] {
        let bad = display.enter(name, vec![]).err().unwrap();
        assert!(matches!(bad, DisplayError::Name { .. }), "{bad}");
    }
    let carried = ViewInfo { elem: ElemType::Bytes(3), ..info("u", &[2]) };
    for views in [vec![info("u", &[2]), info("u", &[3])], vec![carried], vec![info("u", &[1 << 40, 1 << 40])]]
    {
        let bad = display.enter("b", views).err().unwrap();
        assert!(matches!(bad, DisplayError::View { .. }), "{bad}");
    }
    let show = enter(&display, "b", &[2, 2]);
    let short = show.publish(frame_of(1, &[2, 2], Bytes::from_static(&[0; 15]))).unwrap_err();
    assert!(matches!(short, DisplayError::ViewBytes { expected: 16, found: 15, .. }), "{short}");
    let of = |view: View| Frame {
        step: 0,
        time: SystemTime::now(),
        values: Default::default(),
        views: vec![view],
        exact: Vec::new(),
    };
    let whole = |name| View::whole(name, ElemType::U8, &[2], Bytes::from_static(&[0; 2]));
    let unknown = show.publish(of(whole("v"))).unwrap_err();
    assert!(matches!(unknown, DisplayError::UnknownView { .. }), "{unknown}");
    let odd = show.publish(of(View { lo: vec![], ..whole("u") })).unwrap_err();
    assert!(matches!(odd, DisplayError::View { .. }), "{odd}");
    let taken = Options { port: display.socket_address().port(), ..Options::default() };
    let taken = Display::listen(&taken).err().unwrap();
    assert!(matches!(taken, DisplayError::Listen { .. }), "{taken}");
    let bad = Options { token: Some("secret".into()), ..Options::default() };
    let shown = format!("{bad:?}");
    let bad = Display::listen(&bad).err().unwrap();
    assert!(matches!(bad, DisplayError::Token { found: 6 }) && !shown.contains("secret"), "{bad} {shown}");
}
