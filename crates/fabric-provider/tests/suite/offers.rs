//! What is offered and refused, and who is called how.

use super::*;

/// A sender is called as it was first inserted and still is, whether that was before the endpoint had its
/// vector or after.
#[test]
fn who_sends_is_called_as_the_vector_has_it() {
    let mut b = Node::new();
    let mut a = Node::knowing(&[b.name()]);
    let (to_a, again) = (b.insert(&a.name()), a.insert(&b.name()));
    let source = |a: &mut Node, b: &mut Node| {
        let mut room = [0; 8];
        assert_eq!(a.trecv(&mut room, ADDR_UNSPEC, 5, 0, 1), 0);
        assert_eq!(b.tsend(&[7; 8], to_a, 5, 2), 0);
        let from = a.told_from(&mut [b]);
        assert_eq!(room, [7; 8]);
        until_told(&mut [b], &[1]);
        from
    };
    assert_eq!(source(&mut a, &mut b), 0);
    a.remove(0);
    assert_eq!(source(&mut a, &mut b), again);
    a.remove(again);
    assert_eq!(source(&mut a, &mut b), ADDR_NOTAVAIL);
    let last = a.insert(&b.name());
    assert_eq!(source(&mut a, &mut b), last);
}

#[test]
fn what_cannot_be_had_is_not_offered() {
    let usual = getinfo(null()).unwrap();
    let met = |change: &dyn Fn(&mut Info, &mut TxAttr, &mut EpAttr, &mut DomainAttr)| {
        // SAFETY: what the provider made.
        let (mut tx, mut ep, mut domain) =
            unsafe { (*(*usual.get()).tx_attr, *(*usual.get()).ep_attr, *(*usual.get()).domain_attr) };
        domain.threading = abi::THREAD_DOMAIN;
        let mut info = Info {
            next: null_mut(),
            caps: TAGGED,
            mode: 0,
            addr_format: 0,
            src_addrlen: 0,
            dest_addrlen: 0,
            src_addr: null_mut(),
            dest_addr: null_mut(),
            handle: null_mut(),
            tx_attr: null_mut(),
            rx_attr: null_mut(),
            ep_attr: null_mut(),
            domain_attr: null_mut(),
            fabric_attr: null_mut(),
            nic: null_mut(),
        };
        change(&mut info, &mut tx, &mut ep, &mut domain);
        (info.tx_attr, info.ep_attr, info.domain_attr) = (&raw mut tx, &raw mut ep, &raw mut domain);
        let found = getinfo(&info)?;
        // SAFETY: as above.
        let (found, domain) = unsafe { (&*found.get(), &*(*found.get()).domain_attr) };
        Ok::<_, i32>((found.caps, domain.threading, domain.mr_mode))
    };
    let (caps, threading, mr_mode) = met(&|_, _, _, _| ()).unwrap();
    assert_eq!((caps & (SEND | RECV | TAGGED), threading), (SEND | RECV | TAGGED, THREAD_DOMAIN));
    assert_eq!((caps & (MSG | RMA | ATOMIC), mr_mode), (0, 0));
    for mr_mode in [MR_BASIC, MR_SCALABLE] {
        assert_eq!(met(&|_, _, _, domain| domain.mr_mode = mr_mode).unwrap().2, mr_mode);
    }
    type Change = dyn Fn(&mut Info, &mut TxAttr, &mut EpAttr, &mut DomainAttr);
    let not: [&Change; 9] = [
        &|info, _, _, _| info.caps = 1 << 6,
        &|info, _, _, _| info.addr_format = 2,
        &|_, tx, _, _| tx.inject_size = 1 << 20,
        &|_, tx, _, _| tx.msg_order = ORDER_STRICT,
        &|_, tx, _, _| tx.iov_limit = 100_000,
        &|_, _, ep, _| ep.kind = 1,
        &|_, _, ep, _| ep.tx_ctx_cnt = 2,
        &|_, _, _, domain| domain.data_progress = PROGRESS_AUTO,
        &|_, _, _, domain| domain.name = c"eth0".as_ptr().cast_mut(),
    ];
    for (n, change) in not.into_iter().enumerate() {
        assert_eq!(met(change), Err(ENODATA), "change {n}");
    }
}

/// As libfabric's `fi_getinfo_test` has it: an address to open an endpoint at, and the progress that was
/// asked for.
#[test]
fn what_is_said_of_an_endpoint_is_complete() {
    let usual = getinfo(null()).unwrap();
    // SAFETY: what the provider made.
    let (info, domain) = unsafe { (&*usual.get(), &mut *(*usual.get()).domain_attr) };
    assert!(!info.src_addr.is_null());
    // SAFETY: so many bytes are there.
    let address = unsafe { core::slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen) };
    let node = Node::new();
    assert_eq!((address.len(), &address[..4]), (node.name().len(), &node.name()[..4]));
    assert_eq!(domain.control_progress, PROGRESS_AUTO);
    domain.control_progress = PROGRESS_MANUAL;
    // SAFETY: as above.
    let tx = unsafe { &mut *info.tx_attr };
    assert_eq!(std::mem::replace(&mut tx.iov_limit, 4096), 32);
    let manual = getinfo(usual.get()).unwrap();
    // SAFETY: as above.
    let (domain, tx) = unsafe { (&*(*manual.get()).domain_attr, &*(*manual.get()).tx_attr) };
    assert_eq!((domain.control_progress, tx.iov_limit), (PROGRESS_MANUAL, 4096));
}

/// There are no descriptors to wait on, and no events of addresses: who wants them is told so at once.
#[test]
fn what_is_not_there_is_refused_when_it_is_opened() {
    let (node, wait_fd) = (Node::new(), 3);
    // SAFETY: as a program does it.
    unsafe {
        let (mut cntr, mut av): (*mut CntrFid, *mut AvFid) = (null_mut(), null_mut());
        let attr = CntrAttr { events: 0, wait_obj: wait_fd, wait_set: null_mut(), flags: 0 };
        let ops = &*(*node.domain).ops;
        assert_eq!((ops.cntr_open)(node.domain, &attr, &raw mut cntr, null_mut()), -ENOSYS);
        let attr = AvAttr { flags: EVENT, ..core::mem::zeroed() };
        assert_eq!((ops.av_open)(node.domain, &attr, &raw mut av, null_mut()), -ENOSYS);
    }
}
#[test]
fn who_is_gone_is_told() {
    let (mut a, mut b, to_b, to_a) = pair();
    let mut got = [0; 8];
    assert_eq!((a.tsend(&[1; 8], to_b, 1, 1), b.trecv(&mut got, to_a, 1, 0, 2)), (0, 0));
    until_told(&mut [&mut a, &mut b], &[1, 1]);
    // It is offered, and nobody comes for it.
    let long = vec![1; 50_000];
    assert_eq!(a.tsend(&long, to_b, 2, 3), 0);
    // Receives from it end, before it is gone and after; one from anybody stays.
    let (mut more, mut any) = ([0; 8], [0; 8]);
    assert_eq!((a.trecv(&mut more, to_b, 8, 0, 5), a.trecv(&mut any, ADDR_UNSPEC, 8, 0, 6)), (0, 0));
    drop(b);
    let told = until_told(&mut [&mut a], &[2]);
    let mut failed: Vec<_> = told[0].iter().map(|one| one.unwrap_err()).collect();
    failed.sort_by_key(|one| one.context);
    assert_eq!(failed.iter().map(|one| one.context).collect::<Vec<_>>(), [context(3), context(5)]);
    assert!(failed.iter().all(|one| one.error == EHOSTUNREACH));
    assert_eq!(a.trecv(&mut more, to_b, 8, 0, 7), 0);
    let late = until_told(&mut [&mut a], &[1])[0][0].unwrap_err();
    assert_eq!((late.context, late.error), (context(7), EHOSTUNREACH));
    assert_eq!(a.tsend(&[1; 8], to_b, 1, 4), 0);
    assert_eq!(until_told(&mut [&mut a], &[1])[0][0].unwrap_err().error, EHOSTUNREACH);
    // What was sent by one that is gone is received.
    let (mut c, d) = (Node::new(), Node::new());
    let (to_c, to_d) = (d.insert(&c.name()), c.insert(&d.name()));
    assert_eq!(d.tsend(&[9; 8], to_c, 1, 1), 0);
    drop(d);
    assert_eq!(c.trecv(&mut got, to_d, 1, 0, 2), 0);
    assert!(until_told(&mut [&mut c], &[1])[0][0].is_ok());
    assert_eq!(got, [9; 8]);
}
