//! Units that meet an authentic unit 0 which breaks the rules.

use super::super::dial::dial;
use super::super::listener::PipeListener;
use super::super::wire::{Back, First};
use super::super::{JobKey, PipeAddress, Trust};
use super::*;
use crate::join::{check_options, hello};
use crate::wire::{Array, FromHost, Role, Takes, Welcome, Wish};
use crate::{Expect, Given, Reader, Writer};
use polyduct_port::{Policy, Scope};
use polyduct_slots::Turn;

fn takes() -> Takes {
    Takes::One(Wish::layout("block"))
}

fn array() -> Array {
    Array { name: String::new(), shape: vec![4], elem: "u8".into(), layout: "block".into(), open: None }
}

fn reader_role() -> Role {
    Role::Reader { takes: takes() }
}

pub fn welcome() -> Welcome {
    Welcome {
        id: [1; 16],
        program: 0,
        writers: 2,
        readers: vec![1],
        depth: 2,
        policy: Policy::Block,
        arrays: vec![array()],
        writers_wait: false,
        readers_wait: vec![false],
        reader_programs: vec!["r".into()],
        reader_takes: vec![takes()],
    }
}

/// Has a unit come to a unit 0 that says this, and stays until the unit has gone.
fn met<T>(says: Vec<Tell>, unit: impl FnOnce(&PipeAddress, &Trust) -> T) -> T {
    let mut place = PipeAddress::new("127.0.0.1", 0, "false");
    let trust = Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network: true };
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut listener = PipeListener::new(at, &place, &trust, &Options::default()).unwrap();
    place.port = listener.addr().port();
    std::thread::scope(|s| {
        s.spawn(move || {
            let mut session = loop {
                let mut items = Vec::new();
                listener.items(&mut items);
                poll(&mut items, None).unwrap();
                if let Some((channel, _)) = listener.serve(clock::now()).unwrap().pop() {
                    break ResumableSession::new(channel);
                }
            };
            says.into_iter().for_each(|tell| session.post(tell).unwrap());
            while session.flush().is_ok() && session.hear::<Ask>().is_ok() {
                let _ = poll(&mut [PollItem::readable(session.channel())], Some(RETRY.1));
            }
        });
        unit(&place, &trust)
    })
}

fn meets(welcome: Welcome) -> Tell {
    let at = SocketAddr::from(([127, 0, 0, 1], 1));
    Tell::Meet(FromHost::Welcome(welcome), 1, Some(at), 0)
}

fn options(unit: u32, units: u32) -> Options {
    let timeout = Duration::from_secs(10);
    Options { unit, units, timeout: Some(timeout), open_timeout: timeout, ..Options::default() }
}

fn assert_bad<T>(result: Result<T, PipeError>, says: &str) {
    let error = result.map(drop).unwrap_err();
    assert!(error.to_string().contains(says) && error.scope() == Scope::Port, "{error}");
}

#[test]
fn a_welcome_whose_sizes_cannot_be_is_refused() {
    let any = Welcome { readers: Vec::new(), policy: Policy::Latest, depth: 16, ..welcome() };
    let cases = [
        (Welcome { program: 0xffff_fff0, ..any }, "without a place"),
        (Welcome { program: 1, ..welcome() }, "without a place"),
        (Welcome { depth: 1 << 30, ..welcome() }, "out of limits"),
        (Welcome { readers: vec![u32::MAX; 8], ..welcome() }, "out of limits"),
    ];
    for (welcome, says) in cases {
        let opened = met(vec![meets(welcome)], |place, trust| {
            Reader::open((place, trust), "block", &Expect::default(), &options(0, 1))
        });
        assert_bad(opened, says);
    }
}

#[test]
fn steps_that_nobody_asked_for_and_slots_that_are_not_there_are_refused() {
    let fill = |slot| Tell::Begin(Begin::Fill(Turn { step: 0, slot, sense: true, uses: 0 }));
    for (begins, says) in [(vec![fill(0); 3], "more steps than slots"), (vec![fill(2)], "a slot that")] {
        let go = [meets(welcome()), Tell::Meet(FromHost::Go, 0, None, 0)];
        let written = met(go.into_iter().chain(begins).collect(), |place, trust| {
            let data = polyduct_layout::Dataset::new(&[4], polyduct_layout::ElemType::U8).unwrap();
            let given = Given::Dataset(data);
            let mut w = Writer::open((place, trust), &given, "block", &options(1, 2))?;
            w.write(&[1, 2])
        });
        assert_bad(written, says);
    }
}

#[test]
fn units_that_cannot_be_are_not_lost_and_no_unit_is_lost_twice() {
    let name = |side, unit| UnitName { side, unit };
    let join = |lost: &[UnitName]| {
        let says = lost.iter().map(|&unit| Tell::Lost(unit, 1)).chain([meets(welcome())]);
        met(says.collect(), |place, trust| {
            let options = options(0, 1);
            check_options(&options, Side::Reader(0))?;
            let hello = hello(&options, reader_role()).unwrap();
            let joined = Client::join(place, trust, &options, hello, |_| Ok(None), clock::now());
            joined.map(|(client, ..)| client.absent.len())
        })
    };
    let (writer, reader) = (name(Side::Writer, 1), name(Side::Reader(0), 1));
    assert_eq!(join(&[writer, reader, writer]).unwrap(), 2);
    assert_bad(join(&[writer, name(Side::Writer, MAX_UNITS)]), "unit");
    assert_bad(join(&[name(Side::Reader(MAX_PROGRAMS), 0)]), "unit");
}

/// A reader of two steps, with whose connection something happens `between` them.
fn read_two(between: impl FnOnce(&mut Client, &PipeAddress, &Trust)) {
    let trust = Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network: true };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = PipeAddress::new("127.0.0.1", port, "two");
    let (place, trust) = (&place, &trust);
    std::thread::scope(|s| {
        let (done, told) = std::sync::mpsc::channel::<()>();
        s.spawn(move || {
            let data = polyduct_layout::Dataset::new(&[4], polyduct_layout::ElemType::U8).unwrap();
            let given = Given::Dataset(data);
            let mut w = Writer::open((place, trust), &given, "block", &options(0, 1)).unwrap();
            w.write(&[0; 4]).unwrap();
            let _ = told.recv();
            w.write(&[1; 4]).unwrap();
            w.close().unwrap();
        });
        let options = options(0, 1);
        let hello = hello(&options, reader_role()).unwrap();
        let joined = Client::join(place, trust, &options, hello, |_| Ok(None), clock::now());
        let (mut client, ..) = joined.unwrap();
        client.ready().unwrap();
        let next = |client: &mut Client, step: u64| {
            client.say(&Ask::Next).unwrap();
            let next = client.wait(step, "step", &mut Duration::default(), Client::next).unwrap();
            assert!(matches!(next, Next::Step(turn) if turn.step == step), "{next:?}");
            client.say(&Ask::Release).unwrap();
        };
        next(&mut client, 0);
        between(&mut client, place, trust);
        drop(done);
        next(&mut client, 1);
        client.leave(&Ask::Close);
    });
}

#[test]
fn a_connection_that_is_made_again_too_late_harms_no_unit() {
    read_two(|client, place, trust| {
        let (at, start) = ([client.calls.addr], clock::now());
        let mut again = dial(place, trust, &options(0, 1), start, &at, (HOST, true), || Ok(None)).unwrap();
        again
            .post(&First::Again { session: client.calls.session, heard: 0, life: 0, pipe: [0; 16] })
            .unwrap();
        assert!(again.flush().unwrap());
        let answer = loop {
            match again.hear::<Back>() {
                Ok(None) => poll(&mut [PollItem::readable(&again)], None).unwrap(),
                answer => break answer,
            };
        };
        assert!(answer.is_err(), "{answer:?}");
    });
}

#[test]
fn who_has_come_to_the_door_is_gone_when_the_connection_is_made_again() {
    read_two(|client, _, _| {
        let visited = |client: &Client, patience| {
            let mut door = [PollItem::readable(client.door.as_ref().unwrap())];
            poll(&mut door, patience).unwrap();
            door[0].is_ready()
        };
        // Unit 0 looks for this unit, which learns of it afterwards.
        client.session.channel().shut();
        assert!(visited(client, None));
        client.session.is_cut();
        client.mending = Some(Mending::new(clock::now()));
        while client.mending.is_some() {
            client.take(1).unwrap();
            client.rest(RETRY.1).unwrap();
        }
        assert!(!visited(client, Some(Duration::ZERO)));
    });
}
