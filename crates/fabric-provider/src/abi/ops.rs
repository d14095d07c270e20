//! Tables of functions. Each begins with its own size, by which a library of another version knows which of
//! them are there; none is left out, since libraries call some without looking.

use super::{
    AtomicAttr, AvAttr, AvFid, CntrAttr, CntrFid, CqAttr, CqErrEntry, CqFid, DomainFid, EpFid, EqAttr, EqFid,
    FabricFid, Fid, Info, Ioc, MrAttr, MrFid, Msg, MsgAtomic, MsgRma, MsgTagged, PollAttr, PollFid,
};
use std::ffi::{c_char, c_int, c_void};

/// The place of a function that is not there: it answers `-FI_ENOSYS`, whatever its arguments are.
pub type Stub = unsafe extern "C" fn() -> isize;

/// See [`Stub`]. In its place it has other arguments, of which it takes none.
pub extern "C" fn none() -> isize {
    -(super::ENOSYS as isize)
}

type Ptr = *mut c_void;
type Buf = *const c_void;
type Iov = *const libc::iovec;
type Desc = *mut *mut c_void;

#[repr(C)]
pub struct FidOps {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, Ptr) -> c_int,
    pub ops_open: Stub,
    pub tostr: Stub,
    pub ops_set: Stub,
}

#[repr(C)]
pub struct FabricOps {
    pub size: usize,
    pub domain: unsafe extern "C" fn(*mut FabricFid, *const Info, *mut *mut DomainFid, Ptr) -> c_int,
    pub passive_ep: Stub,
    pub eq_open: unsafe extern "C" fn(*mut FabricFid, *const EqAttr, *mut *mut EqFid, Ptr) -> c_int,
    pub wait_open: Stub,
    pub trywait: Stub,
    pub domain2: unsafe extern "C" fn(*mut FabricFid, *const Info, *mut *mut DomainFid, u64, Ptr) -> c_int,
}

#[repr(C)]
pub struct DomainOps {
    pub size: usize,
    pub av_open: unsafe extern "C" fn(*mut DomainFid, *const AvAttr, *mut *mut AvFid, Ptr) -> c_int,
    pub cq_open: unsafe extern "C" fn(*mut DomainFid, *const CqAttr, *mut *mut CqFid, Ptr) -> c_int,
    pub endpoint: unsafe extern "C" fn(*mut DomainFid, *const Info, *mut *mut EpFid, Ptr) -> c_int,
    pub scalable_ep: Stub,
    pub cntr_open: unsafe extern "C" fn(*mut DomainFid, *const CntrAttr, *mut *mut CntrFid, Ptr) -> c_int,
    pub poll_open: unsafe extern "C" fn(*mut DomainFid, *const PollAttr, *mut *mut PollFid) -> c_int,
    pub stx_ctx: Stub,
    pub srx_ctx: Stub,
    pub query_atomic: unsafe extern "C" fn(*mut DomainFid, c_int, c_int, *mut AtomicAttr, u64) -> c_int,
    pub query_collective: Stub,
    pub endpoint2: unsafe extern "C" fn(*mut DomainFid, *const Info, *mut *mut EpFid, u64, Ptr) -> c_int,
}

#[repr(C)]
pub struct PollOps {
    pub size: usize,
    pub poll: unsafe extern "C" fn(*mut PollFid, *mut Ptr, c_int) -> c_int,
    pub poll_add: unsafe extern "C" fn(*mut PollFid, *mut Fid, u64) -> c_int,
    pub poll_del: unsafe extern "C" fn(*mut PollFid, *mut Fid, u64) -> c_int,
}

#[repr(C)]
pub struct MrOps {
    pub size: usize,
    pub reg: unsafe extern "C" fn(*mut Fid, Buf, usize, u64, u64, u64, u64, *mut *mut MrFid, Ptr) -> c_int,
    pub regv: unsafe extern "C" fn(*mut Fid, Iov, usize, u64, u64, u64, u64, *mut *mut MrFid, Ptr) -> c_int,
    pub regattr: unsafe extern "C" fn(*mut Fid, *const MrAttr, u64, *mut *mut MrFid) -> c_int,
}

#[repr(C)]
pub struct AvOps {
    pub size: usize,
    pub insert: unsafe extern "C" fn(*mut AvFid, Buf, usize, *mut u64, u64, Ptr) -> c_int,
    pub insertsvc:
        unsafe extern "C" fn(*mut AvFid, *const c_char, *const c_char, *mut u64, u64, Ptr) -> c_int,
    pub insertsym: Stub,
    pub remove: unsafe extern "C" fn(*mut AvFid, *mut u64, usize, u64) -> c_int,
    pub lookup: unsafe extern "C" fn(*mut AvFid, u64, Ptr, *mut usize) -> c_int,
    pub straddr: unsafe extern "C" fn(*mut AvFid, Buf, *mut c_char, *mut usize) -> *const c_char,
    pub av_set: Stub,
    // Since 2.x.
    pub insert_auth_key: Stub,
    pub lookup_auth_key: Stub,
    pub set_user_id: Stub,
}

#[repr(C)]
pub struct CqOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut CqFid, Ptr, usize) -> isize,
    pub readfrom: unsafe extern "C" fn(*mut CqFid, Ptr, usize, *mut u64) -> isize,
    pub readerr: unsafe extern "C" fn(*mut CqFid, *mut CqErrEntry, u64) -> isize,
    pub sread: unsafe extern "C" fn(*mut CqFid, Ptr, usize, Buf, c_int) -> isize,
    pub sreadfrom: unsafe extern "C" fn(*mut CqFid, Ptr, usize, *mut u64, Buf, c_int) -> isize,
    pub signal: unsafe extern "C" fn(*mut CqFid) -> c_int,
    pub strerror: unsafe extern "C" fn(*mut CqFid, c_int, Buf, *mut c_char, usize) -> *const c_char,
}

#[repr(C)]
pub struct EqOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut EqFid, *mut u32, Ptr, usize, u64) -> isize,
    pub readerr: unsafe extern "C" fn(*mut EqFid, Ptr, u64) -> isize,
    pub write: Stub,
    pub sread: unsafe extern "C" fn(*mut EqFid, *mut u32, Ptr, usize, c_int, u64) -> isize,
    pub strerror: unsafe extern "C" fn(*mut EqFid, c_int, Buf, *mut c_char, usize) -> *const c_char,
}

#[repr(C)]
pub struct CntrOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut CntrFid) -> u64,
    pub readerr: unsafe extern "C" fn(*mut CntrFid) -> u64,
    pub add: unsafe extern "C" fn(*mut CntrFid, u64) -> c_int,
    pub set: unsafe extern "C" fn(*mut CntrFid, u64) -> c_int,
    pub wait: unsafe extern "C" fn(*mut CntrFid, u64, c_int) -> c_int,
    pub adderr: unsafe extern "C" fn(*mut CntrFid, u64) -> c_int,
    pub seterr: unsafe extern "C" fn(*mut CntrFid, u64) -> c_int,
}

#[repr(C)]
pub struct EpOps {
    pub size: usize,
    pub cancel: unsafe extern "C" fn(*mut Fid, Ptr) -> isize,
    pub getopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, Ptr, *mut usize) -> c_int,
    pub setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, Buf, usize) -> c_int,
    pub tx_ctx: Stub,
    pub rx_ctx: Stub,
    pub rx_size_left: Stub,
    pub tx_size_left: Stub,
}

#[repr(C)]
pub struct CmOps {
    pub size: usize,
    pub setname: Stub,
    pub getname: unsafe extern "C" fn(*mut Fid, Ptr, *mut usize) -> c_int,
    pub getpeer: Stub,
    pub connect: Stub,
    pub listen: Stub,
    pub accept: Stub,
    pub reject: Stub,
    pub shutdown: Stub,
    pub join: Stub,
}

type Ep = *mut EpFid;

#[repr(C)]
pub struct MsgOps {
    pub size: usize,
    pub recv: unsafe extern "C" fn(Ep, Ptr, usize, Ptr, u64, Ptr) -> isize,
    pub recvv: unsafe extern "C" fn(Ep, Iov, Desc, usize, u64, Ptr) -> isize,
    pub recvmsg: unsafe extern "C" fn(Ep, *const Msg, u64) -> isize,
    pub send: unsafe extern "C" fn(Ep, Buf, usize, Ptr, u64, Ptr) -> isize,
    pub sendv: unsafe extern "C" fn(Ep, Iov, Desc, usize, u64, Ptr) -> isize,
    pub sendmsg: unsafe extern "C" fn(Ep, *const Msg, u64) -> isize,
    pub inject: unsafe extern "C" fn(Ep, Buf, usize, u64) -> isize,
    pub senddata: unsafe extern "C" fn(Ep, Buf, usize, Ptr, u64, u64, Ptr) -> isize,
    pub injectdata: unsafe extern "C" fn(Ep, Buf, usize, u64, u64) -> isize,
}

#[repr(C)]
pub struct TaggedOps {
    pub size: usize,
    pub recv: unsafe extern "C" fn(Ep, Ptr, usize, Ptr, u64, u64, u64, Ptr) -> isize,
    pub recvv: unsafe extern "C" fn(Ep, Iov, Desc, usize, u64, u64, u64, Ptr) -> isize,
    pub recvmsg: unsafe extern "C" fn(Ep, *const MsgTagged, u64) -> isize,
    pub send: unsafe extern "C" fn(Ep, Buf, usize, Ptr, u64, u64, Ptr) -> isize,
    pub sendv: unsafe extern "C" fn(Ep, Iov, Desc, usize, u64, u64, Ptr) -> isize,
    pub sendmsg: unsafe extern "C" fn(Ep, *const MsgTagged, u64) -> isize,
    pub inject: unsafe extern "C" fn(Ep, Buf, usize, u64, u64) -> isize,
    pub senddata: unsafe extern "C" fn(Ep, Buf, usize, Ptr, u64, u64, u64, Ptr) -> isize,
    pub injectdata: unsafe extern "C" fn(Ep, Buf, usize, u64, u64, u64) -> isize,
}

#[repr(C)]
pub struct RmaOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(Ep, Ptr, usize, Ptr, u64, u64, u64, Ptr) -> isize,
    pub readv: unsafe extern "C" fn(Ep, Iov, Desc, usize, u64, u64, u64, Ptr) -> isize,
    pub readmsg: unsafe extern "C" fn(Ep, *const MsgRma, u64) -> isize,
    pub write: unsafe extern "C" fn(Ep, Buf, usize, Ptr, u64, u64, u64, Ptr) -> isize,
    pub writev: unsafe extern "C" fn(Ep, Iov, Desc, usize, u64, u64, u64, Ptr) -> isize,
    pub writemsg: unsafe extern "C" fn(Ep, *const MsgRma, u64) -> isize,
    pub inject: unsafe extern "C" fn(Ep, Buf, usize, u64, u64, u64) -> isize,
    pub writedata: unsafe extern "C" fn(Ep, Buf, usize, Ptr, u64, u64, u64, u64, Ptr) -> isize,
    pub injectdata: unsafe extern "C" fn(Ep, Buf, usize, u64, u64, u64, u64) -> isize,
}

type Vector = *const Ioc;
type Valid = unsafe extern "C" fn(Ep, c_int, c_int, *mut usize) -> c_int;

#[repr(C)]
pub struct AtomicOps {
    pub size: usize,
    pub write: unsafe extern "C" fn(Ep, Buf, usize, Ptr, u64, u64, u64, c_int, c_int, Ptr) -> isize,
    pub writev: unsafe extern "C" fn(Ep, Vector, Desc, usize, u64, u64, u64, c_int, c_int, Ptr) -> isize,
    pub writemsg: unsafe extern "C" fn(Ep, *const MsgAtomic, u64) -> isize,
    pub inject: unsafe extern "C" fn(Ep, Buf, usize, u64, u64, u64, c_int, c_int) -> isize,
    #[rustfmt::skip]
    pub readwrite: unsafe extern "C" fn(
        Ep, Buf, usize, Ptr, Ptr, Ptr, u64, u64, u64, c_int, c_int, Ptr,
    ) -> isize,
    #[rustfmt::skip]
    pub readwritev: unsafe extern "C" fn(
        Ep, Vector, Desc, usize, Vector, Desc, usize, u64, u64, u64, c_int, c_int, Ptr,
    ) -> isize,
    pub readwritemsg: unsafe extern "C" fn(Ep, *const MsgAtomic, Vector, Desc, usize, u64) -> isize,
    #[rustfmt::skip]
    pub compwrite: unsafe extern "C" fn(
        Ep, Buf, usize, Ptr, Buf, Ptr, Ptr, Ptr, u64, u64, u64, c_int, c_int, Ptr,
    ) -> isize,
    #[rustfmt::skip]
    pub compwritev: unsafe extern "C" fn(
        Ep, Vector, Desc, usize, Vector, Desc, usize, Vector, Desc, usize, u64, u64, u64, c_int, c_int, Ptr,
    ) -> isize,
    #[rustfmt::skip]
    pub compwritemsg: unsafe extern "C" fn(
        Ep, *const MsgAtomic, Vector, Desc, usize, Vector, Desc, usize, u64,
    ) -> isize,
    pub writevalid: Valid,
    pub readwritevalid: Valid,
    pub compwritevalid: Valid,
}
