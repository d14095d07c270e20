//! What both processes do for each figure.

use super::*;

pub(super) fn short(p: &mut Player) -> (f64, f64) {
    let limit = p.limit(5000);
    (p.ping(5000, 1), limit)
}

pub(super) fn channels(p: &mut Player) -> (f64, f64) {
    (p.ping(5000, 64), p.ping(5000, 1))
}

pub(super) fn rate(p: &mut Player) -> (f64, f64) {
    let n = 200_000;
    let before = p.meet();
    let start = now();
    if p.first {
        for _ in 0..n {
            while p.senders[0].short(head(DATA)) == Err(SendError::Full) {
                core::hint::spin_loop();
            }
        }
    } else {
        let all = before.short + n;
        p.until(|seen| seen.short >= all);
    }
    p.meet();
    (n as f64 / (now() - start).as_secs_f64() / 1e6, 20.0)
}

pub(super) fn overhead(p: &mut Player) -> (f64, f64) {
    let mut all = Vec::new();
    let payload = [3; 64];
    for _ in 0..50 {
        let before = p.meet();
        if p.first {
            let start = now();
            for _ in 0..64 {
                p.senders[0].send(head(DATA), &payload).unwrap();
            }
            all.push((now() - start).as_secs_f64() * 1e9 / 64.0);
        } else {
            let next = before.short + 64;
            p.until(|seen| seen.short >= next);
        }
    }
    all.sort_by(f64::total_cmp);
    (all.get(all.len() / 2).copied().unwrap_or(0.0), 60.0)
}

pub(super) fn priority(p: &mut Player) -> (f64, f64) {
    let alone = p.ping_high(300, |_| {});
    let flooded = p.ping_high(300, |p| {
        // As many as the ring holds; the receiver may be as fast as this.
        let _ = (0..1024).try_for_each(|_| p.senders[1].short(head(DATA)));
    });
    settle(p);
    (flooded, alone)
}

pub(super) fn priority_bulk(p: &mut Player) -> (f64, f64) {
    p.buffers(MIB);
    let alone = p.ping_high(100, |_| {});
    let flooded = p.ping_high(100, |p| {
        for _ in 0..8 {
            let source = &p.source[..MIB];
            let sender = &mut p.senders[1];
            let done = match sender.left() as usize {
                0 => sender.send(head(DATA), source),
                left => sender.extend(&source[MIB - left..]),
            };
            if done.is_err() {
                break;
            }
        }
    });
    if p.first {
        while p.senders[1].left() > 0 {
            let left = p.senders[1].left() as usize;
            let _ = p.senders[1].extend(&p.source[MIB - left..MIB]);
        }
    }
    settle(p);
    (flooded, alone)
}

/// After a flood, whose messages are no answers: a word that comes last.
fn settle(p: &mut Player) {
    if p.first {
        p.senders[1].send_all(head(SETTLED), &[], &p.end.bell, SPIN, soon()).unwrap();
    } else {
        p.settled += 1;
        let settled = p.settled;
        p.until(|seen| seen.settled >= settled);
    }
    p.meet();
}

pub(super) fn bulk(p: &mut Player, len: usize, n: u64, post: bool) -> (f64, f64) {
    p.buffers(len);
    let mut memcpy = f64::MAX;
    // The next bytes in each round, so that none are warm.
    p.turn += n as usize;
    let places = (p.turn - n as usize..p.turn).map(|i| i * len % (64 * MIB));
    if p.first {
        let start = now();
        for at in places.clone() {
            p.copy[at..at + len].copy_from_slice(&p.source[at..at + len]);
        }
        std::hint::black_box(&mut p.copy);
        memcpy = (now() - start).as_secs_f64();
    }
    let before = p.meet();
    let next = before.bulk + n;
    let start = now();
    let mut took = Duration::ZERO;
    if p.first {
        let mut last = None;
        for at in places {
            let mut head = head(DATA);
            head.args[2] = at as u32;
            let source = &p.source[at..at + len];
            if post {
                last = Some(p.senders[0].post(head, source).unwrap());
            } else {
                p.senders[0].send_all(head, source, &p.end.bell, SPIN, soon()).unwrap();
            }
        }
        if let Some(last) = last {
            while !p.senders[0].is_taken(last) {
                core::hint::spin_loop();
            }
        }
        p.until(|seen| seen.short > before.short);
        took = now() - start;
        // One more that is compared whole, outside the time.
        let mut head = head(DATA);
        head.args[1] = WHOLE;
        p.senders[0].send_all(head, &p.source[..len], &p.end.bell, SPIN, soon()).unwrap();
    } else {
        p.until(|seen| seen.bulk >= next);
        p.senders[0].short(head(DATA)).unwrap();
        p.until(|seen| seen.bulk > next);
    }
    p.meet();
    let bytes = len as f64 * n as f64 / 1e9;
    (bytes / took.as_secs_f64(), bytes / memcpy)
}

pub(super) fn cut(p: &mut Player) -> (f64, f64) {
    let off = pings_of_48k(p, 64 << 10);
    let first = p.senders[0].cut().first_fragment;
    (pings_of_48k(p, first), off)
}

/// 48 KiB there and back, the first fragment as given; µs one way.
fn pings_of_48k(p: &mut Player, first_fragment: u32) -> f64 {
    let (len, n) = (48 << 10, 50);
    p.buffers(MIB);
    let cut = p.senders[0].cut();
    p.senders[0].set_cut(Cut { first_fragment, ..cut });
    let from = p.meet().bulk;
    let start = now();
    for i in 0..n {
        if !p.first {
            p.until(|seen| seen.bulk > from + i);
        }
        p.senders[0].send_all(head(DATA), &p.source[..len], &p.end.bell, SPIN, soon()).unwrap();
        if p.first {
            p.until(|seen| seen.bulk > from + i);
        }
    }
    p.senders[0].set_cut(cut);
    (now() - start).as_secs_f64() * 1e6 / (2 * n) as f64
}

/// Total time of a post with as much work of the sender's own as the transfer takes, beside the transfer alone.
pub(super) fn overlap(p: &mut Player, len: usize) -> (f64, f64) {
    p.buffers(len);
    let once = |p: &mut Player, work: Duration| {
        let before = p.meet();
        let start = now();
        if p.first {
            let ticket = p.senders[0].post(head(DATA), &p.source[..len]).unwrap();
            while now() - start < work {
                std::hint::black_box((0..100_u64).sum::<u64>());
            }
            while !p.senders[0].is_taken(ticket) {
                core::hint::spin_loop();
            }
        } else {
            p.until(|seen| seen.bulk > before.bulk);
        }
        now() - start
    };
    once(p, Duration::ZERO);
    let alone = once(p, Duration::ZERO);
    let best = p.best_transfer.get(&len).copied().unwrap_or(alone).min(alone);
    let with = once(p, best);
    p.best_transfer.insert(len, best);
    (with.as_secs_f64() * 1e6, alone.as_secs_f64() * 1e6)
}

/// A message of one line each way at its barest, by plain stores into 1024 lines in turn: what a ring can come to. (The same
/// line back and forth is cheaper, since with the answer comes the right to write it.)
pub(super) fn fresh_lines(p: &mut Player) -> (f64, f64) {
    let limit = p.limit(5000);
    p.meet();
    let lines = p.end.beside.lines(64 * 64..64 * (64 + 2048)).unwrap();
    // SAFETY: both are 64 bytes of atomics.
    let lines: &[Words] = unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len()) };
    let (one, two) = lines.split_at(1024);
    let (mine, theirs) = if p.first { (one, two) } else { (two, one) };
    let base = p.met << 32;
    let start = now();
    for i in 0..5000 {
        let k = i as usize % 1024;
        if p.first {
            mine[k].w[0].store(base + i, Ordering::Release);
        }
        while theirs[k].w[0].load(Ordering::Acquire) != base + i {
            core::hint::spin_loop();
        }
        if !p.first {
            mine[k].w[0].store(base + i, Ordering::Release);
        }
    }
    ((now() - start).as_secs_f64() * 1e9 / 10_000.0, limit)
}

/// Puts into the peer's region, or gets from it; the peer does nothing.
pub(super) fn put(p: &mut Player, len: usize, put: bool) -> (f64, f64) {
    p.meet();
    let (mut case, mut limit) = (f64::MAX, f64::MAX);
    if p.first {
        p.turn += 1;
        let n = (2 * MIB / len).max(1);
        let at = p.turn * n * len % (64 * MIB);
        let start = now();
        for i in (0..n).map(|i| at + i * len) {
            // SAFETY: within the region and the two buffers, which are as long; the peer leaves the region alone.
            unsafe {
                let (region, source) = (p.end.region.as_ptr().add(i), p.source[i..i + len].as_ptr());
                match put {
                    true => region.copy_from_nonoverlapping(source, len),
                    false => region.copy_to_nonoverlapping(p.copy[i..i + len].as_mut_ptr(), len),
                }
            }
        }
        limit = (now() - start).as_secs_f64();
        let at = (at + 32 * MIB) % (64 * MIB);
        let start = now();
        for i in (0..n).map(|i| at + i * len) {
            match put {
                true => p.end.region.put(i, &p.source[i..i + len]).unwrap(),
                false => p.end.region.get(i, &mut p.copy[i..i + len]).unwrap(),
            }
        }
        case = (now() - start).as_secs_f64();
        let mut found = vec![0; n * len];
        p.end.region.get(at, &mut found).unwrap();
        let expected = if put { &p.source } else { &p.copy };
        p.seen.bad += u64::from(found != expected[at..at + n * len]);
        let bytes = (n * len) as f64 / 1e9;
        (case, limit) = (bytes / case, bytes / limit);
    }
    p.meet();
    (case, limit)
}
