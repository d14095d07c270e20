//! The handshake as two state machines that talk through memory: who may get in, and what everybody else
//! gets.

use polyduct_message::link::hello::{
    Carrier, HandshakeRefusal, Header, Identity, Kind, HEADER, MAGIC, VERSION,
};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::noise::{Established, Initiator, Pending, Terms};
use polyduct_message::link::seal::TAG;
use polyduct_message::LinkError;
use proptest::prelude::*;

const SECRET: [u8; 32] = [7; 32];

fn terms(unit: u32, trusted: bool) -> Terms {
    let me =
        Identity { domain: 5, unit, incarnation: 9, features: 0, frame_limit: 1 << 20, index: 77 + unit };
    Terms { key: JobKey::from_bytes(SECRET).unwrap(), me, trusted, carrier: Carrier::Stream }
}

/// Both sides of a link between unit 0, which connects, and unit 1.
fn linked(connects: &Terms, listens: &Terms) -> (Established, Established) {
    let mut a = Initiator::new(connects, 1).unwrap();
    let mut b = Pending::new(listens, a.message().bytes()).unwrap();
    let (a, confirm) = a.answer(b.message().bytes()).unwrap();
    let b = b.confirm(confirm.bytes()).unwrap();
    (a, b)
}

fn refused(connects: &Terms, to: u32, listens: &Terms) -> (LinkError, LinkError) {
    let mut a = Initiator::new(connects, to).unwrap();
    let error = Pending::new(listens, a.message().bytes()).err().expect("refused");
    let refusal = HandshakeRefusal::of(&error).expect("told why").encode(listens.carrier, listens.trusted);
    let told = a.answer(&refusal).expect_err("refused");
    (error, told)
}

#[test]
fn both_sides_learn_who_the_other_is() {
    for trusted in [false, true] {
        let (a, b) = linked(&terms(0, trusted), &terms(1, trusted));
        assert_eq!((a.peer, b.peer), (terms(1, trusted).me, terms(0, trusted).me));
        assert_eq!([a.sealer.is_plain(), b.opener.is_plain()], [trusted, trusted]);
    }
}

#[test]
fn a_key_that_differs_in_one_bit_is_refused_and_told_so() {
    for bit in 0..256 {
        let mut key = SECRET;
        key[bit / 8] ^= 1 << (bit % 8);
        let other = Terms { key: JobKey::from_bytes(key).unwrap(), ..terms(0, false) };
        let (here, there) = refused(&other, 1, &terms(1, false));
        assert_eq!((here, there), (LinkError::Unauthentic, LinkError::Unauthentic));
    }
}

#[test]
fn what_the_sides_disagree_on_is_named() {
    let (here, there) = refused(&terms(0, true), 1, &terms(1, false));
    assert_eq!((here, there), (LinkError::Trust { mine: false }, LinkError::Trust { mine: true }));
    let (here, there) = refused(&terms(0, false), 2, &terms(1, false));
    let wrong = LinkError::WrongUnit { asked: 2, found: 1 };
    assert_eq!((here, there), (wrong.clone(), wrong));
    let mut other = terms(0, false);
    other.me.domain = 6;
    let (here, there) = refused(&other, 1, &terms(1, false));
    assert_eq!((here, there), (LinkError::WrongDomain, LinkError::WrongDomain));
}

#[test]
fn another_version_gets_a_refusal_that_names_both() {
    let mut first = Initiator::new(&terms(0, false), 1).unwrap();
    for version in [0, VERSION + 1, u16::MAX] {
        let mut message = first.message().bytes().to_vec();
        message[4..6].copy_from_slice(&version.to_le_bytes());
        let error = Pending::new(&terms(1, false), &message).err().unwrap();
        let (protocol, mine) = ("polyduct's network link", VERSION.into());
        assert_eq!(error, LinkError::Version { protocol, expected: mine, found: version.into() });
        let refusal = HandshakeRefusal::of(&error).unwrap();
        assert_eq!(refusal, HandshakeRefusal::Version { mine, yours: version.into() });
        let bytes = refusal.encode(Carrier::Stream, false);
        assert_eq!(HandshakeRefusal::decode(&bytes[HEADER..]), Ok(refusal));
        // A side of another version finds this side's in the first eight bytes, which never change.
        assert_eq!((&bytes[..4], &bytes[4..6]), (&MAGIC[..], &VERSION.to_le_bytes()[..]));
    }
    // And this side learns the other's from its refusal.
    let (mine, yours) = (VERSION.into(), u32::from(VERSION) + 1);
    let mut refusal = HandshakeRefusal::Version { mine: yours, yours: mine }.encode(Carrier::Stream, false);
    refusal[4..6].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let error = first.answer(&refusal).unwrap_err();
    assert_eq!(
        error,
        LinkError::Version { protocol: "polyduct's network link", expected: mine, found: yours }
    );
}

#[test]
fn one_who_repeats_a_recorded_first_message_cannot_confirm() {
    let (zero, one) = (terms(0, false), terms(1, false));
    let mut a = Initiator::new(&zero, 1).unwrap();
    let recorded_first = a.message().clone();
    let mut b = Pending::new(&one, a.message().bytes()).unwrap();
    let (_, recorded_confirm) = a.answer(b.message().bytes()).unwrap();
    assert!(b.confirm(recorded_confirm.bytes()).is_ok());
    let mut again = Pending::new(&one, recorded_first.bytes()).unwrap();
    assert_ne!(again.message().bytes(), b.message().bytes(), "a fresh secret each time");
    assert_eq!(again.confirm(recorded_confirm.bytes()).unwrap_err(), LinkError::Unauthentic);
}

#[test]
fn a_confirmation_counts_once_and_an_answer_too() {
    let mut a = Initiator::new(&terms(0, true), 1).unwrap();
    let mut b = Pending::new(&terms(1, true), a.message().bytes()).unwrap();
    let (_, confirm) = a.answer(b.message().bytes()).unwrap();
    assert!(matches!(a.answer(b.message().bytes()), Err(LinkError::OutOfTurn { .. })));
    assert!(b.confirm(confirm.bytes()).is_ok());
    assert!(matches!(b.confirm(confirm.bytes()), Err(LinkError::OutOfTurn { .. })));
}

#[test]
fn own_messages_thrown_back_lead_nowhere() {
    let zero = terms(0, false);
    let mut a = Initiator::new(&zero, 1).unwrap();
    let mut echo = a.message().bytes().to_vec();
    assert!(matches!(a.answer(&echo), Err(LinkError::OutOfTurn { .. })));
    echo[6] = Kind::Answer as u8;
    assert_eq!(a.answer(&echo).unwrap_err(), LinkError::Unauthentic);
    echo[6] = Kind::First as u8;
    // To its own door, as it is and with the address changed.
    assert_eq!(Pending::new(&zero, &echo).err(), Some(LinkError::WrongUnit { asked: 1, found: 0 }));
    echo[12..16].copy_from_slice(&0_u32.to_le_bytes());
    assert_eq!(Pending::new(&zero, &echo).err(), Some(LinkError::Unauthentic));
    // Records of one direction do not open in the other.
    let (mut a, _b) = linked(&zero, &terms(1, false));
    let (mut record, mut plain) = ([0; 64], [0; 64]);
    let (_, len) = a.sealer.seal(b"hello", &mut record).unwrap();
    assert_eq!(a.opener.open_next(&record[..len], &mut plain), Err(LinkError::Unauthentic));
}

#[test]
fn every_truncation_is_told_apart_from_every_change() {
    let (zero, one) = (terms(0, false), terms(1, false));
    let first = Initiator::new(&zero, 1).unwrap().message().bytes().to_vec();
    for len in 0..first.len() {
        let error = Pending::new(&one, &first[..len]).err().unwrap();
        assert!(matches!(error, LinkError::Truncated { found, .. } if found <= len as u64), "{len}: {error}");
    }
    let mut longer = first.clone();
    longer.push(0);
    assert!(matches!(Pending::new(&one, &longer).err(), Some(LinkError::Truncated { .. })));
    for bit in 0..8 * first.len() {
        let mut changed = first.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let error = Pending::new(&one, &changed).err().expect("refused");
        let unproven = matches!(error, LinkError::Unauthentic | LinkError::Truncated { .. });
        assert!(unproven || bit < 8 * HEADER, "bit {bit}: {error}");
    }
}

#[test]
fn no_bit_of_an_answer_or_a_confirmation_may_change() {
    let mut a = Initiator::new(&terms(0, true), 1).unwrap();
    let mut b = Pending::new(&terms(1, true), a.message().bytes()).unwrap();
    let answer = b.message().bytes().to_vec();
    for bit in 0..8 * answer.len() {
        let mut changed = answer.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(a.answer(&changed).is_err(), "bit {bit}");
    }
    let (_, confirm) = a.answer(&answer).expect("the right one still counts");
    for bit in 0..8 * confirm.bytes().len() {
        let mut changed = confirm.bytes().to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(b.confirm(&changed).is_err(), "bit {bit}");
    }
    assert!(b.confirm(confirm.bytes()).is_ok());
}

proptest! {
    /// Any bytes are refused without a panic, and a stranger's length never decides over memory.
    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), real_start in any::<bool>()) {
        let mut bytes = bytes;
        if real_start {
            let first = Initiator::new(&terms(0, false), 1).unwrap().message().bytes().to_vec();
            bytes.splice(..bytes.len().min(HEADER), first[..HEADER].iter().copied());
        }
        prop_assert!(Pending::new(&terms(1, false), &bytes).is_err());
        prop_assert!(Initiator::new(&terms(0, false), 1).unwrap().answer(&bytes).is_err());
        let _ = Header::decode(&bytes);
        let _ = Identity::decode(&bytes);
        let _ = HandshakeRefusal::decode(&bytes);
    }

    /// What is sealed opens to the same bytes, once, and in its place only; datagrams in any order within the
    /// window.
    #[test]
    fn records_open_once(lens in prop::collection::vec(0_usize..5000, 1..12), picks in prop::collection::vec(any::<prop::sample::Index>(), 1..40)) {
        let (mut a, mut b) = linked(&terms(0, false), &terms(1, false));
        let records: Vec<_> = lens.iter().enumerate().map(|(i, &len)| {
            let plain = vec![i as u8; len];
            let mut record = vec![0; len + TAG];
            let (number, sealed) = a.sealer.seal(&plain, &mut record).unwrap();
            prop_assert_eq!(sealed, record.len());
            Ok((number, plain, record))
        }).collect::<Result<_, _>>()?;
        let mut opened = std::collections::BTreeSet::new();
        for pick in picks {
            let (number, plain, record) = pick.get(&records);
            let mut out = vec![0; record.len()];
            let got = b.opener.open_at(*number, record, &mut out);
            match opened.insert(*number) {
                true => prop_assert_eq!(&out[..got.unwrap()], &plain[..]),
                false => prop_assert!(matches!(got, Err(LinkError::OutOfTurn { .. })), "{:?}", got),
            }
        }
        // A stream takes them in order only.
        for (at, (_, plain, record)) in records.iter().enumerate() {
            for (_, _, other) in records.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, r)| r) {
                let mut out = vec![0; other.len()];
                prop_assert_eq!(b.opener.open_next(other, &mut out), Err(LinkError::Unauthentic));
            }
            let mut out = vec![0; record.len()];
            prop_assert_eq!(b.opener.open_next(record, &mut out), Ok(plain.len()));
        }
    }

    /// A changed bit anywhere in a record is noticed.
    #[test]
    fn a_changed_record_does_not_open(len in 0_usize..2000, bit in any::<prop::sample::Index>()) {
        let (mut a, mut b) = linked(&terms(0, false), &terms(1, false));
        let mut record = vec![0; len + TAG];
        let (number, _) = a.sealer.seal(&vec![1; len], &mut record).unwrap();
        let (bit, mut out) = (bit.index(8 * record.len()), vec![0; len + TAG]);
        record[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(b.opener.open_at(number, &record, &mut out), Err(LinkError::Unauthentic));
        record[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(b.opener.open_at(number, &record, &mut out), Ok(len));
    }
}

#[test]
fn a_record_longer_than_the_limit_is_not_made() {
    let (mut a, _) = linked(&terms(0, false), &terms(1, false));
    let mut out = vec![0; 70_000];
    assert!(a.sealer.seal(&vec![0; 65_520], &mut out).is_err());
    assert_eq!(a.sealer.seal(&vec![0; 65_519], &mut out).unwrap(), (1, 65_535), "the number is not used up");
}
