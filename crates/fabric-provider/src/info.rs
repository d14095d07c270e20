//! What the provider can do, and whether that is what a program asks for.

use crate::abi::{self, DomainAttr, EpAttr, FabricAttr, Info, RxAttr, TxAttr};
use crate::engine::pieces::MOST as PIECES;
use crate::engine::{POSTED, WAITING};
use crate::names;
use polyduct_message::endpoint::{Place, PLACE_BYTES, SHORT_BYTES};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::net::Ipv4Addr;
use std::ptr::null_mut;

const NAME: &CStr = c"polyduct";
/// Of addresses and protocols that are the provider's own.
const OWN: u32 = 1 << 31 | 0x7064;
/// Bytes of a message, or of an access to remote memory, at most.
const MOST: usize = 1 << 40;
/// Bytes of the data that goes with a message.
const DATA_BYTES: usize = 4;
/// Pieces of a message, where a program does not ask for more: programs have tables of as many as they are
/// told.
const USUAL_PIECES: usize = 32;
const KEY_BYTES: usize = 8;
/// Objects of each kind, at most: a number that is given, and no limit is kept.
const MANY: usize = 1 << 16;
/// What tags are made of: any bits.
const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// What messages are for.
const PRIMARY: u64 = abi::MSG | abi::TAGGED | abi::RMA | abi::ATOMIC;
const ACCESS: u64 = abi::READ | abi::WRITE | abi::REMOTE_READ | abi::REMOTE_WRITE;
const SECONDARY: u64 =
    abi::MULTI_RECV | abi::LOCAL_COMM | abi::REMOTE_COMM | abi::SOURCE | abi::DIRECTED_RECV | abi::RMA_EVENT;
const CAPS: u64 = PRIMARY | ACCESS | abi::SEND | abi::RECV | SECONDARY;
const TX_CAPS: u64 = PRIMARY | abi::SEND | abi::READ | abi::WRITE;
const RX_CAPS: u64 = PRIMARY
    | abi::RECV
    | abi::REMOTE_READ
    | abi::REMOTE_WRITE
    | abi::MULTI_RECV
    | abi::SOURCE
    | abi::DIRECTED_RECV
    | abi::RMA_EVENT;
const TX_FLAGS: u64 = abi::COMPLETION
    | abi::INJECT
    | abi::INJECT_COMPLETE
    | abi::TRANSMIT_COMPLETE
    | abi::DELIVERY_COMPLETE
    | abi::MATCH_COMPLETE;
const RX_FLAGS: u64 = abi::COMPLETION | abi::MULTI_RECV;

/// libfabric asks what there is.
///
/// # Safety
/// As the manual page `fi_getinfo` has it.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const Info,
    info: *mut *mut Info,
) -> c_int {
    let found = std::panic::catch_unwind(|| {
        // SAFETY: the caller's.
        let hints = unsafe { Hints::of(hints) };
        // SAFETY: as above.
        let ends = hints.are_met().then(|| unsafe { hints.ends(node, service, flags) })??;
        Some(hints.answer(version, &ends))
    });
    match found {
        Ok(Some(found)) if !found.is_null() => {
            // SAFETY: the caller's.
            unsafe { info.write(found) };
            0
        }
        Ok(Some(_)) => -abi::ENOMEM,
        Ok(None) => -abi::ENODATA,
        Err(_) => -abi::EOTHER,
    }
}

/// Where a program wants to be, and whom it wants to reach.
struct Ends {
    /// `None`: anywhere.
    source: Option<Place>,
    destination: Option<Place>,
}

/// What a program asks for, as far as it says.
#[derive(Default)]
struct Hints<'a> {
    info: Option<&'a Info>,
    tx: Option<&'a TxAttr>,
    rx: Option<&'a RxAttr>,
    ep: Option<&'a EpAttr>,
    /// Of an older version it ends earlier, and its end is not looked at.
    domain: Option<&'a DomainAttr>,
    fabric: Option<&'a FabricAttr>,
}

impl<'a> Hints<'a> {
    /// # Safety
    /// Null, or what libfabric made.
    unsafe fn of(info: *const Info) -> Hints<'a> {
        // SAFETY: the caller's.
        unsafe {
            let Some(info) = info.as_ref() else { return Hints::default() };
            Hints {
                info: Some(info),
                tx: info.tx_attr.as_ref(),
                rx: info.rx_attr.as_ref(),
                ep: info.ep_attr.as_ref(),
                domain: info.domain_attr.as_ref(),
                fabric: info.fabric_attr.as_ref(),
            }
        }
    }

    fn are_met(&self) -> bool {
        self.info
            .is_none_or(|info| info.caps & !CAPS == 0 && (info.addr_format == 0 || info.addr_format == OWN))
            && self.tx.is_none_or(|tx| {
                tx.caps & !(TX_CAPS | SECONDARY | CAPS) == 0
                    && tx.op_flags & !TX_FLAGS == 0
                    && tx.msg_order & !abi::ORDER_SAS == 0
                    && tx.comp_order == 0
                    && tx.inject_size <= SHORT_BYTES
                    && tx.size <= WAITING
                    && tx.iov_limit <= PIECES
                    && tx.rma_iov_limit <= 1
            })
            && self.rx.is_none_or(|rx| {
                rx.caps & !CAPS == 0
                    && rx.op_flags & !RX_FLAGS == 0
                    && rx.msg_order & !abi::ORDER_SAS == 0
                    && rx.comp_order == 0
                    && rx.size <= POSTED
                    && rx.iov_limit <= PIECES
            })
            && self.ep.is_none_or(|ep| {
                matches!(ep.kind, abi::EP_UNSPEC | abi::EP_RDM)
                    && (ep.protocol == 0 || ep.protocol == OWN)
                    && ep.max_msg_size <= MOST
                    && ep.tx_ctx_cnt <= 1
                    && ep.rx_ctx_cnt <= 1
                    && ep.auth_key_size == 0
            })
            && self.domain.is_none_or(|domain| {
                // SAFETY: libfabric's string, or null.
                let named = unsafe { is_named(domain.name) };
                named
                    && domain.data_progress != abi::PROGRESS_AUTO
                    && domain.mr_key_size <= KEY_BYTES
                    && domain.cq_data_size <= DATA_BYTES
                    && domain.caps & !(abi::LOCAL_COMM | abi::REMOTE_COMM) == 0
            })
            && self.fabric.is_none_or(|fabric| {
                // SAFETY: as above.
                unsafe { is_named(fabric.name) }
            })
    }

    /// Where the program wants to be and whom to reach: by names, and else by the addresses in the hints.
    /// `None`: there is no such place.
    ///
    /// # Safety
    /// Strings, or null.
    unsafe fn ends(&self, node: *const c_char, service: *const c_char, flags: u64) -> Option<Ends> {
        let is_named = !node.is_null() || !service.is_null();
        // SAFETY: the caller's.
        let named = |this| unsafe { names::named(node, service, flags, this) };
        // SAFETY: libfabric's, or the program's after it.
        let said = |at: fn(&Info) -> (*mut c_void, usize)| unsafe {
            self.info.map(at).map_or(Ok(None), |(at, len)| names::addressed(at, len))
        };
        let is_source = is_named && flags & abi::SOURCE_FLAG != 0;
        let destination = match is_named && !is_source {
            true => Some(named(Ipv4Addr::LOCALHOST)?),
            false => said(|info| (info.dest_addr, info.dest_addrlen)).ok()?,
        };
        let source = match is_source {
            true => {
                let mut source = named(Ipv4Addr::UNSPECIFIED)?;
                if node.is_null() {
                    // Anywhere on this host: see where endpoints are opened.
                    source.at = source.at.map(|at| (Ipv4Addr::UNSPECIFIED, at.port()).into());
                }
                Some(source)
            }
            false => said(|info| (info.src_addr, info.src_addrlen)).ok()?,
        };
        let source = source.filter(|source| source.draw > 0 && source.at.is_none_or(|at| at.port() > 0));
        source.is_none_or(|source| source.is_here()).then_some(Ends { source, destination })
    }

    /// What the program may do. What it did not ask for it has where that costs nothing.
    fn caps(&self) -> u64 {
        let Some(asked) = self.info.map(|info| info.caps).filter(|&caps| caps != 0) else { return CAPS };
        let mut caps = asked | abi::LOCAL_COMM | abi::REMOTE_COMM;
        if caps & (abi::MSG | abi::TAGGED) != 0 && caps & (abi::SEND | abi::RECV) == 0 {
            caps |= abi::SEND | abi::RECV;
        }
        if caps & (abi::RMA | abi::ATOMIC) != 0 && caps & ACCESS == 0 {
            caps |= ACCESS;
        }
        caps
    }

    /// Null where there is no memory. All of it is libfabric's to free.
    fn answer(&self, version: u32, ends: &Ends) -> *mut Info {
        let caps = self.caps();
        // Programs from before the flags of registration name one of two models.
        let asked = self.domain.map_or(0, |domain| domain.mr_mode);
        let mr_mode = match asked {
            abi::MR_BASIC | abi::MR_SCALABLE => asked,
            _ if version < abi::version(1, 5) => abi::MR_SCALABLE,
            _ => 0,
        };
        let or = |asked: Option<c_int>, usual: c_int| asked.filter(|&asked| asked != 0).unwrap_or(usual);
        let tx = TxAttr {
            caps: caps & TX_CAPS,
            mode: 0,
            op_flags: self.tx.map_or(0, |tx| tx.op_flags),
            msg_order: abi::ORDER_SAS,
            comp_order: 0,
            inject_size: SHORT_BYTES,
            size: WAITING,
            iov_limit: self.tx.map_or(0, |tx| tx.iov_limit).max(USUAL_PIECES),
            rma_iov_limit: 1,
            tclass: abi::TC_UNSPEC,
        };
        let rx = RxAttr {
            caps: caps & RX_CAPS,
            mode: 0,
            op_flags: self.rx.map_or(0, |rx| rx.op_flags),
            msg_order: abi::ORDER_SAS,
            comp_order: 0,
            total_buffered_recv: 0,
            size: POSTED,
            iov_limit: self.rx.map_or(0, |rx| rx.iov_limit).max(USUAL_PIECES),
        };
        let ep = EpAttr {
            kind: abi::EP_RDM,
            protocol: OWN,
            protocol_version: 1,
            max_msg_size: MOST,
            msg_prefix_size: 0,
            max_order_raw_size: 0,
            max_order_war_size: 0,
            max_order_waw_size: 0,
            mem_tag_format: self.ep.map_or(0, |ep| ep.mem_tag_format),
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            auth_key_size: 0,
            auth_key: null_mut(),
        };
        let ep = EpAttr {
            mem_tag_format: if ep.mem_tag_format == 0 { TAG_FORMAT } else { ep.mem_tag_format },
            ..ep
        };
        let domain = DomainAttr {
            domain: null_mut(),
            name: copy_of(NAME),
            threading: or(self.domain.map(|domain| domain.threading), abi::THREAD_SAFE),
            control_progress: or(self.domain.map(|domain| domain.control_progress), abi::PROGRESS_AUTO),
            data_progress: abi::PROGRESS_MANUAL,
            resource_mgmt: abi::RM_ENABLED,
            av_type: or(self.domain.map(|domain| domain.av_type), abi::AV_TABLE),
            mr_mode,
            mr_key_size: KEY_BYTES,
            cq_data_size: DATA_BYTES,
            cq_cnt: MANY,
            ep_cnt: MANY,
            tx_ctx_cnt: MANY,
            rx_ctx_cnt: MANY,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            max_ep_stx_ctx: 0,
            max_ep_srx_ctx: 0,
            cntr_cnt: MANY,
            mr_iov_limit: 1,
            caps: abi::LOCAL_COMM | abi::REMOTE_COMM,
            mode: 0,
            auth_key: null_mut(),
            auth_key_size: 0,
            max_err_data: 0,
            mr_cnt: MANY,
            tclass: abi::TC_UNSPEC,
            max_ep_auth_key: 0,
            max_group_id: 0,
            max_cntr_value: u64::MAX,
            max_err_cntr_value: u64::MAX,
        };
        let fabric = FabricAttr {
            fabric: null_mut(),
            name: copy_of(NAME),
            prov_name: null_mut(),
            prov_version: abi::version(0, 1),
            api_version: version,
        };
        allocated(Info {
            next: null_mut(),
            caps,
            mode: 0,
            addr_format: OWN,
            src_addrlen: PLACE_BYTES,
            dest_addrlen: ends.destination.map_or(0, |_| PLACE_BYTES),
            src_addr: allocated(ends.source.map_or_else(somewhere, |place| place.to_bytes())).cast(),
            dest_addr: ends.destination.map_or(null_mut(), |place| allocated(place.to_bytes()).cast()),
            handle: null_mut(),
            tx_attr: allocated(tx),
            rx_attr: allocated(rx),
            ep_attr: allocated(ep),
            domain_attr: allocated(domain),
            fabric_attr: allocated(fabric),
            nic: null_mut(),
        })
    }
}

/// The address of an endpoint that is not open yet: it is drawn when it opens. As with a port of 0, a program
/// may open an endpoint there, and nobody reaches it by that.
fn somewhere() -> [u8; PLACE_BYTES] {
    Place { unit: 0, draw: 0, host: None, at: None }.to_bytes()
}

/// # Safety
/// A string, or null.
unsafe fn is_named(name: *const c_char) -> bool {
    // SAFETY: the caller's.
    name.is_null() || unsafe { CStr::from_ptr(name) } == NAME
}

/// A value in memory that C frees; null where there is none.
fn allocated<T>(value: T) -> *mut T {
    // SAFETY: memory of this size, which is aligned for anything.
    unsafe {
        let at = libc::calloc(1, size_of::<T>()).cast::<T>();
        if !at.is_null() {
            at.write(value);
        }
        at
    }
}

fn copy_of(name: &CStr) -> *mut c_char {
    // SAFETY: a string.
    unsafe { libc::strdup(name.as_ptr()) }
}
