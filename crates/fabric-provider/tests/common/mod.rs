//! An endpoint as a program has it: everything goes through libfabric's tables.

use polyduct_fi::abi::{self, *};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void, CString};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

/// What waits longer has failed.
pub const WATCHDOG: Duration = Duration::from_secs(60);

/// A place for contexts: any pointer names an operation.
pub fn context(n: usize) -> *mut c_void {
    core::ptr::without_provenance_mut(n)
}

/// What the provider says that it is, freed as libfabric does it.
#[derive(Debug)]
pub struct Info(*mut abi::Info);

/// What the provider says for these hints.
pub fn getinfo(hints: *const abi::Info) -> Result<Info, c_int> {
    getinfo_at(hints, None, None, 0)
}

/// The same for these names of a host and a service.
pub fn getinfo_at(
    hints: *const abi::Info,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
) -> Result<Info, c_int> {
    crate::init();
    let [node, service] = [node, service].map(|name| name.map(|name| CString::new(name).unwrap()));
    let at = |name: &Option<CString>| name.as_ref().map_or(null(), |name| name.as_ptr());
    let mut info = null_mut();
    // SAFETY: as libfabric calls it.
    let found = unsafe {
        let provider = &*polyduct_fi::fi_prov_ini();
        (provider.getinfo)(abi::NEWEST, at(&node), at(&service), flags, hints, &raw mut info)
    };
    if found == 0 {
        Ok(Info(info))
    } else {
        Err(-found)
    }
}

impl Info {
    pub fn get(&self) -> *const abi::Info {
        self.0
    }

    /// The address to be at.
    pub fn source(&self) -> Vec<u8> {
        // SAFETY: it lives, and has one of this length.
        unsafe { core::slice::from_raw_parts((*self.0).src_addr.cast(), (*self.0).src_addrlen) }.to_vec()
    }

    /// The same with another address to be at, of the same length.
    pub fn at(self, place: Vec<u8>) -> Info {
        // SAFETY: it lives, and has room for one.
        unsafe { core::ptr::copy_nonoverlapping(place.as_ptr(), (*self.0).src_addr.cast(), place.len()) };
        self
    }

    /// The address to be reached, if there is one.
    pub fn destination(&self) -> Option<Vec<u8>> {
        // SAFETY: as above.
        unsafe {
            let (at, len) = ((*self.0).dest_addr, (*self.0).dest_addrlen);
            (!at.is_null()).then(|| core::slice::from_raw_parts(at.cast(), len).to_vec())
        }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: all of it was allocated so.
        unsafe {
            let i = &*self.0;
            libc::free((*i.domain_attr).name.cast());
            libc::free((*i.fabric_attr).name.cast());
            libc::free(i.src_addr);
            libc::free(i.dest_addr);
            libc::free(i.tx_attr.cast());
            libc::free(i.rx_attr.cast());
            libc::free(i.ep_attr.cast());
            libc::free(i.domain_attr.cast());
            libc::free(i.fabric_attr.cast());
            libc::free(self.0.cast());
        }
    }
}

/// An endpoint with all that it needs.
pub struct Node {
    fabric: *mut FabricFid,
    pub domain: *mut DomainFid,
    pub av: *mut AvFid,
    pub cq: *mut CqFid,
    pub ep: *mut EpFid,
    /// Closed after the endpoint, which may use them.
    counters: Vec<*mut CntrFid>,
    /// Read and not asked for yet.
    read: VecDeque<Result<CqTaggedEntry, Failed>>,
}

// SAFETY: of a domain for several threads.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

/// An operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub context: *mut c_void,
    pub error: c_int,
    pub lacking: usize,
}

fn ok(result: c_int) {
    assert_eq!(result, 0);
}

impl Node {
    pub fn new() -> Node {
        Node::knowing(&[])
    }

    /// One whose address vector has these before the endpoint is bound to it.
    pub fn knowing(names: &[Vec<u8>]) -> Node {
        Node::of(&getinfo(null()).unwrap(), names)
    }

    /// The error of an endpoint that cannot be opened.
    pub fn refused(info: &Info) -> c_int {
        let (mut fabric, mut domain, mut ep) = (null_mut(), null_mut(), null_mut());
        let info = info.0;
        // SAFETY: as a program does it.
        let result = unsafe {
            let provider = &*polyduct_fi::fi_prov_ini();
            ok((provider.fabric)((*info).fabric_attr, &raw mut fabric, null_mut()));
            ok(((*(*fabric).ops).domain)(fabric, info, &raw mut domain, null_mut()));
            ((*(*domain).ops).endpoint)(domain, info, &raw mut ep, null_mut())
        };
        close(domain);
        close(fabric);
        -result
    }

    /// One as it was given, whose address vector has these before.
    pub fn of(info: &Info, names: &[Vec<u8>]) -> Node {
        let info = info.0;
        let (mut fabric, mut domain, mut av, mut cq, mut ep) =
            (null_mut(), null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: as a program does it.
        unsafe {
            let provider = &*polyduct_fi::fi_prov_ini();
            ok((provider.fabric)((*info).fabric_attr, &raw mut fabric, null_mut()));
            ok(((*(*fabric).ops).domain)(fabric, info, &raw mut domain, null_mut()));
            ok(((*(*domain).ops).av_open)(domain, null(), &raw mut av, null_mut()));
            let attr = CqAttr {
                size: 0,
                flags: 0,
                format: CQ_FORMAT_TAGGED,
                wait_obj: WAIT_NONE,
                signaling_vector: 0,
                wait_cond: 0,
                wait_set: null_mut(),
            };
            ok(((*(*domain).ops).cq_open)(domain, &attr, &raw mut cq, null_mut()));
            ok(((*(*domain).ops).endpoint)(domain, info, &raw mut ep, null_mut()));
            for name in names {
                insert(av, name);
            }
            let fid = ep.cast::<Fid>();
            ok(((*(*fid).ops).bind)(fid, av.cast(), 0));
            ok(((*(*fid).ops).bind)(fid, cq.cast(), SEND | RECV));
            ok(((*(*fid).ops).control)(fid, CMD_ENABLE, null_mut()));
        }
        Node { fabric, domain, av, cq, ep, counters: Vec::new(), read: VecDeque::new() }
    }

    /// A counter that counts nothing yet.
    pub fn counter(&mut self) -> *mut CntrFid {
        let mut cntr = null_mut();
        // SAFETY: as a program does it.
        unsafe { ok(((*(*self.domain).ops).cntr_open)(self.domain, null(), &raw mut cntr, null_mut())) };
        self.counters.push(cntr);
        cntr
    }

    /// Its address, to be told to others.
    pub fn name(&self) -> Vec<u8> {
        let mut len = 0;
        // SAFETY: as a program does it.
        unsafe {
            let fid = self.ep.cast::<Fid>();
            assert_eq!(((*(*self.ep).cm).getname)(fid, null_mut(), &raw mut len), -ETOOSMALL);
            let mut name = vec![0; len];
            ok(((*(*self.ep).cm).getname)(fid, name.as_mut_ptr().cast(), &raw mut len));
            name
        }
    }

    /// Learns of another; what it is called from now on.
    pub fn insert(&self, name: &[u8]) -> u64 {
        // SAFETY: it lives.
        unsafe { insert(self.av, name) }
    }

    /// Learns of the one at a port of a host.
    pub fn insert_service(&self, host: &str, port: &str) -> u64 {
        let [host, port] = [host, port].map(|name| CString::new(name).unwrap());
        let mut address = 0;
        // SAFETY: as a program does it.
        let inserted = unsafe {
            let insert = (*(*self.av).ops).insertsvc;
            insert(self.av, host.as_ptr(), port.as_ptr(), &raw mut address, 0, null_mut())
        };
        assert_eq!(inserted, 1);
        address
    }

    /// Calls another so no longer.
    pub fn remove(&self, mut address: u64) {
        // SAFETY: as a program does it.
        ok(unsafe { ((*(*self.av).ops).remove)(self.av, &raw mut address, 1, 0) });
    }

    /// The next that is told, and what its sender is called.
    pub fn told_from(&mut self, others: &mut [&mut Node]) -> u64 {
        let start = Instant::now();
        loop {
            let (mut entry, mut from) = (core::mem::MaybeUninit::<CqTaggedEntry>::uninit(), 0);
            // SAFETY: as a program does it.
            let found =
                unsafe { ((*(*self.cq).ops).readfrom)(self.cq, entry.as_mut_ptr().cast(), 1, &raw mut from) };
            if found == 1 {
                return from;
            }
            assert_eq!(found as c_int, -EAGAIN);
            assert!(start.elapsed() < WATCHDOG, "nothing is told");
            for other in others.iter_mut() {
                other.look();
            }
        }
    }

    /// Receives with a tag; [`EAGAIN`] and the like come back.
    pub fn trecv(&self, to: &mut [u8], from: u64, tag: u64, ignore: u64, n: usize) -> isize {
        // SAFETY: the caller keeps the memory until it is told.
        unsafe {
            let ops = &*(*self.ep).tagged;
            (ops.recv)(self.ep, to.as_mut_ptr().cast(), to.len(), null_mut(), from, tag, ignore, context(n))
        }
    }

    pub fn tsend(&self, bytes: &[u8], to: u64, tag: u64, n: usize) -> isize {
        // SAFETY: as above.
        unsafe {
            let ops = &*(*self.ep).tagged;
            (ops.send)(self.ep, bytes.as_ptr().cast(), bytes.len(), null_mut(), to, tag, context(n))
        }
    }

    /// Looks, claims or discards.
    pub fn trecvmsg(&self, to: &mut [u8], tag: u64, flags: u64, n: usize) -> isize {
        let iov = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let msg = MsgTagged {
            iov: &raw const iov,
            desc: null_mut(),
            iov_count: 1,
            addr: ADDR_UNSPEC,
            tag,
            ignore: 0,
            context: context(n),
            data: 0,
        };
        // SAFETY: as above.
        unsafe { ((*(*self.ep).tagged).recvmsg)(self.ep, &msg, flags) }
    }

    /// One look at the queue.
    pub fn look(&mut self) -> bool {
        let mut entries = [const { core::mem::MaybeUninit::<CqTaggedEntry>::uninit() }; 8];
        // SAFETY: as a program does it; so many entries were written as it says.
        unsafe {
            let ops = &*(*self.cq).ops;
            let found = (ops.read)(self.cq, entries.as_mut_ptr().cast(), 8);
            match found as c_int {
                n if n > 0 => {
                    self.read.extend(entries[..n as usize].iter().map(|entry| Ok(entry.assume_init())))
                }
                n if n == -EAVAIL => {
                    let mut entry: CqErrEntry = core::mem::zeroed();
                    assert_eq!((ops.readerr)(self.cq, &raw mut entry, 0), 1);
                    let CqErrEntry { op_context: context, err: error, olen: lacking, .. } = entry;
                    self.read.push_back(Err(Failed { context, error, lacking }));
                }
                n => assert_eq!(n, -EAGAIN),
            }
            found as c_int != -EAGAIN
        }
    }

    /// Waits for so many milliseconds until something is told, which is lost; what `fi_cq_sread` returns.
    pub fn wait(&self, timeout: c_int) -> c_int {
        let mut entry = core::mem::MaybeUninit::<CqTaggedEntry>::uninit();
        // SAFETY: as a program does it.
        unsafe { ((*(*self.cq).ops).sread)(self.cq, entry.as_mut_ptr().cast(), 1, null(), timeout) as c_int }
    }

    /// Calls a wait off.
    pub fn signal(&self) {
        // SAFETY: as above.
        ok(unsafe { ((*(*self.cq).ops).signal)(self.cq) });
    }

    /// What was told, if anything.
    pub fn told(&mut self) -> Option<Result<CqTaggedEntry, Failed>> {
        self.read.pop_front()
    }

    pub fn mr(&self, memory: &mut [u8], access: u64, key: u64) -> Result<*mut MrFid, c_int> {
        let mut mr = null_mut();
        // SAFETY: as a program does it.
        let result = unsafe {
            ((*(*self.domain).mr).reg)(
                self.domain.cast(),
                memory.as_ptr().cast(),
                memory.len(),
                access,
                0,
                key,
                0,
                &raw mut mr,
                null_mut(),
            )
        };
        if result == 0 {
            Ok(mr)
        } else {
            Err(-result)
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        close(self.ep);
        self.counters.drain(..).for_each(close);
        for fid in [self.cq.cast::<Fid>(), self.av.cast(), self.domain.cast(), self.fabric.cast()] {
            close(fid);
        }
    }
}

/// # Safety
/// The vector lives.
unsafe fn insert(av: *mut AvFid, name: &[u8]) -> u64 {
    let mut address = 0;
    // SAFETY: as a program does it.
    let inserted =
        unsafe { ((*(*av).ops).insert)(av, name.as_ptr().cast(), 1, &raw mut address, 0, null_mut()) };
    assert_eq!(inserted, 1);
    address
}

/// Ends an object.
pub fn close<T>(object: *mut T) {
    let fid = object.cast::<Fid>();
    // SAFETY: as a program does it.
    ok(unsafe { ((*(*fid).ops).close)(fid) });
}

/// Looks at all queues until each node has been told so many things; those, for each.
pub fn until_told(nodes: &mut [&mut Node], counts: &[usize]) -> Vec<Vec<Result<CqTaggedEntry, Failed>>> {
    let (start, mut told) = (Instant::now(), vec![Vec::new(); nodes.len()]);
    while told.iter().zip(counts).any(|(told, count)| told.len() < *count) {
        for (node, told) in nodes.iter_mut().zip(&mut told) {
            node.look();
            while let Some(one) = node.told() {
                told.push(one);
            }
        }
        assert!(
            start.elapsed() < WATCHDOG,
            "told so far: {:?}",
            told.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
    told
}
