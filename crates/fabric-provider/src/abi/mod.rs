//! libfabric's interface for providers, as its headers declare it: version 2.5, which begins as every older one
//! since 1.17 does.
//!
//! Structures have grown at their ends. What a library of an older version allocated is read only as far as
//! that version has it; what is allocated here has the length of 2.5, which older ones copy the beginning of.

mod flags;
mod ops;

pub use flags::*;
pub use ops::*;

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

/// `FI_VERSION(major, minor)`.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// The version of what is declared here.
pub const NEWEST: u32 = version(2, 5);

/// What every object begins with.
#[repr(C)]
pub struct Fid {
    pub class: usize,
    pub context: *mut c_void,
    pub ops: *const FidOps,
}

#[repr(C)]
pub struct Provider {
    pub version: u32,
    pub fi_version: u32,
    /// Memory of the library.
    pub context: [*mut c_void; 4],
    pub name: *const c_char,
    pub getinfo:
        unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int,
    pub fabric: unsafe extern "C" fn(*const FabricAttr, *mut *mut FabricFid, *mut c_void) -> c_int,
    pub cleanup: unsafe extern "C" fn(),
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct TxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct EpAttr {
    pub kind: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
    pub max_order_raw_size: usize,
    pub max_order_war_size: usize,
    pub max_order_waw_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DomainAttr {
    pub domain: *mut c_void,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
    // Since 2.x.
    pub max_ep_auth_key: usize,
    pub max_group_id: u32,
    pub max_cntr_value: u64,
    pub max_err_cntr_value: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct FabricAttr {
    pub fabric: *mut c_void,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

#[repr(C)]
pub struct Info {
    pub next: *mut Info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut Fid,
    pub tx_attr: *mut TxAttr,
    pub rx_attr: *mut RxAttr,
    pub ep_attr: *mut EpAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
    pub nic: *mut c_void,
}

#[repr(C)]
pub struct FabricFid {
    pub fid: Fid,
    pub ops: *const FabricOps,
    pub api_version: u32,
}

#[repr(C)]
pub struct DomainFid {
    pub fid: Fid,
    pub ops: *const DomainOps,
    pub mr: *const MrOps,
}

#[repr(C)]
pub struct AvFid {
    pub fid: Fid,
    pub ops: *const AvOps,
}

#[repr(C)]
pub struct CqFid {
    pub fid: Fid,
    pub ops: *const CqOps,
}

#[repr(C)]
pub struct EqFid {
    pub fid: Fid,
    pub ops: *const EqOps,
}

#[repr(C)]
pub struct PollFid {
    pub fid: Fid,
    pub ops: *const PollOps,
}

#[repr(C)]
pub struct CntrFid {
    pub fid: Fid,
    pub ops: *const CntrOps,
}

#[repr(C)]
pub struct MrFid {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
pub struct EpFid {
    pub fid: Fid,
    pub ops: *const EpOps,
    pub cm: *const CmOps,
    pub msg: *const MsgOps,
    pub rma: *const RmaOps,
    pub tagged: *const TaggedOps,
    pub atomic: *const AtomicOps,
    pub collective: *const c_void,
}

#[repr(C)]
pub struct AvAttr {
    pub kind: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
pub struct CntrAttr {
    pub events: c_int,
    pub wait_obj: c_int,
    pub wait_set: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub struct PollAttr {
    pub flags: u64,
}

#[repr(C)]
pub struct EqAttr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
pub struct MrAttr {
    pub mr_iov: *const libc::iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: c_int,
    // More follows, of which nothing is read: a device, and since 2.x what belongs to one.
}

/// The longest form of a completion; the others are its beginnings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CqTaggedEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

#[repr(C)]
pub struct CqErrEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    // Since 1.20 there is the address of the sender, for which programs of before have no room.
}

#[repr(C)]
pub struct Msg {
    pub iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct MsgTagged {
    pub iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmaIov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
pub struct MsgRma {
    pub iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub rma_iov: *const RmaIov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

/// A vector of elements.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

#[repr(C)]
pub struct MsgAtomic {
    pub iov: *const Ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub rma_iov: *const RmaIov,
    pub rma_iov_count: usize,
    pub datatype: c_int,
    pub op: c_int,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct AtomicAttr {
    pub count: usize,
    pub size: usize,
}

/// What `FI_ALIAS` asks for.
#[repr(C)]
pub struct Alias {
    pub fid: *mut *mut Fid,
    pub flags: u64,
}

// Sizes and places as the headers have them on 64-bit Linux.
const _: () = {
    assert!(size_of::<Fid>() == 24 && size_of::<Provider>() == 72);
    assert!(size_of::<TxAttr>() == 80 && size_of::<RxAttr>() == 64 && size_of::<EpAttr>() == 96);
    assert!(size_of::<DomainAttr>() == 224 && offset_of!(DomainAttr, max_ep_auth_key) == 192);
    assert!(size_of::<FabricAttr>() == 32 && size_of::<Info>() == 120);
    assert!(size_of::<FabricFid>() == 40 && size_of::<DomainFid>() == 40 && size_of::<EpFid>() == 80);
    assert!(size_of::<MrFid>() == 40 && size_of::<AvAttr>() == 48 && size_of::<CqAttr>() == 40);
    assert!(size_of::<CntrAttr>() == 24 && size_of::<EqAttr>() == 32 && offset_of!(MrAttr, iface) == 64);
    assert!(size_of::<CqTaggedEntry>() == 48 && size_of::<CqErrEntry>() == 80);
    assert!(size_of::<Msg>() == 48 && size_of::<MsgTagged>() == 64 && size_of::<MsgRma>() == 64);
    assert!(size_of::<MsgAtomic>() == 72 && size_of::<Ioc>() == 16);
};
