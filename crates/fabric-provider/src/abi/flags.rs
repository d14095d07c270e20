//! Numbers.

use std::ffi::c_int;

const fn bit(n: u32) -> u64 {
    1 << n
}

// -- capabilities --
pub const MSG: u64 = bit(1);
pub const RMA: u64 = bit(2);
pub const TAGGED: u64 = bit(3);
pub const ATOMIC: u64 = bit(4);
pub const READ: u64 = bit(8);
pub const WRITE: u64 = bit(9);
pub const RECV: u64 = bit(10);
pub const SEND: u64 = bit(11);
pub const REMOTE_READ: u64 = bit(12);
pub const REMOTE_WRITE: u64 = bit(13);
pub const LOCAL_COMM: u64 = bit(51);
pub const REMOTE_COMM: u64 = bit(52);
pub const SHARED_AV: u64 = bit(53);
pub const RMA_EVENT: u64 = bit(56);
pub const SOURCE: u64 = bit(57);
pub const DIRECTED_RECV: u64 = bit(59);

// -- flags of operations, and of what is told of them --
pub const MULTI_RECV: u64 = bit(16);
pub const REMOTE_CQ_DATA: u64 = bit(17);
pub const MORE: u64 = bit(18);
pub const PEEK: u64 = bit(19);
pub const FENCE: u64 = bit(21);
pub const COMPLETION: u64 = bit(24);
pub const EVENT: u64 = COMPLETION;
pub const INJECT: u64 = bit(25);
pub const INJECT_COMPLETE: u64 = bit(26);
pub const TRANSMIT_COMPLETE: u64 = bit(27);
pub const DELIVERY_COMPLETE: u64 = bit(28);
pub const MATCH_COMPLETE: u64 = bit(31);
pub const CLAIM: u64 = bit(59);
pub const DISCARD: u64 = bit(58);
pub const SELECTIVE_COMPLETION: u64 = bit(59);
pub const FETCH_ATOMIC: u64 = bit(58);
pub const COMPARE_ATOMIC: u64 = bit(59);
pub const TRANSMIT: u64 = SEND;

// -- of fi_getinfo --
pub const PROV_ATTR_ONLY: u64 = bit(54);
pub const NUMERICHOST: u64 = bit(55);
pub const SOURCE_FLAG: u64 = bit(57);

// -- modes --
pub const CONTEXT: u64 = bit(59);
pub const CONTEXT2: u64 = bit(52);

pub const ADDR_UNSPEC: u64 = u64::MAX;
pub const ADDR_NOTAVAIL: u64 = u64::MAX;
pub const KEY_NOTAVAIL: u64 = u64::MAX;

// -- memory registration --
pub const MR_BASIC: c_int = 1;
pub const MR_SCALABLE: c_int = 2;

// -- enumerations --
pub const AV_UNSPEC: c_int = 0;
pub const AV_MAP: c_int = 1;
pub const AV_TABLE: c_int = 2;
pub const PROGRESS_UNSPEC: c_int = 0;
pub const PROGRESS_AUTO: c_int = 1;
pub const PROGRESS_MANUAL: c_int = 2;
pub const THREAD_UNSPEC: c_int = 0;
pub const THREAD_SAFE: c_int = 1;
pub const THREAD_DOMAIN: c_int = 3;
pub const RM_ENABLED: c_int = 2;
pub const EP_UNSPEC: c_int = 0;
pub const EP_RDM: c_int = 3;
pub const TC_UNSPEC: u32 = 0;

pub const ORDER_SAS: u64 = bit(8);
/// Of reads and writes among themselves, and of atomics.
pub const ORDER_REMOTE: u64 = 0xff | 0xff << 32;
pub const ORDER_STRICT: u64 = 0x1ff;

// -- classes of objects --
pub const CLASS_FABRIC: usize = 1;
pub const CLASS_DOMAIN: usize = 2;
pub const CLASS_EP: usize = 3;
pub const CLASS_AV: usize = 11;
pub const CLASS_MR: usize = 12;
pub const CLASS_EQ: usize = 13;
pub const CLASS_CQ: usize = 14;
pub const CLASS_CNTR: usize = 15;
pub const CLASS_POLL: usize = 17;

// -- commands of control --
pub const CMD_GETOPSFLAG: c_int = 2;
pub const CMD_SETOPSFLAG: c_int = 3;
pub const CMD_ALIAS: c_int = 4;
pub const CMD_GETWAIT: c_int = 5;
pub const CMD_ENABLE: c_int = 6;
pub const CMD_GETWAITOBJ: c_int = 16;

// -- options of endpoints --
pub const OPT_ENDPOINT: c_int = 0;
pub const OPT_MIN_MULTI_RECV: c_int = 0;
pub const OPT_CM_DATA_SIZE: c_int = 1;
pub const OPT_TX_SIZE: c_int = 6;
pub const OPT_RX_SIZE: c_int = 7;

// -- formats of completions --
pub const CQ_FORMAT_UNSPEC: c_int = 0;
pub const CQ_FORMAT_CONTEXT: c_int = 1;
pub const CQ_FORMAT_MSG: c_int = 2;
pub const CQ_FORMAT_DATA: c_int = 3;
pub const CQ_FORMAT_TAGGED: c_int = 4;

pub const WAIT_NONE: c_int = 0;
pub const WAIT_UNSPEC: c_int = 1;
pub const WAIT_YIELD: c_int = 5;

// -- errors: those of the system, and libfabric's own from 256 on --
pub const EAGAIN: c_int = libc::EAGAIN;
pub const EINVAL: c_int = libc::EINVAL;
pub const EADDRINUSE: c_int = libc::EADDRINUSE;
pub const EADDRNOTAVAIL: c_int = libc::EADDRNOTAVAIL;
pub const ENOSYS: c_int = libc::ENOSYS;
pub const ENODATA: c_int = libc::ENODATA;
pub const ENOMEM: c_int = libc::ENOMEM;
pub const EBUSY: c_int = libc::EBUSY;
pub const ENOMSG: c_int = libc::ENOMSG;
pub const ECANCELED: c_int = libc::ECANCELED;
pub const EHOSTUNREACH: c_int = libc::EHOSTUNREACH;
pub const ENOTCONN: c_int = libc::ENOTCONN;
pub const EMSGSIZE: c_int = libc::EMSGSIZE;
pub const EACCES: c_int = libc::EACCES;
pub const ETIMEDOUT: c_int = libc::ETIMEDOUT;
pub const EIO: c_int = libc::EIO;
pub const EOPNOTSUPP: c_int = libc::EOPNOTSUPP;
pub const ENOPROTOOPT: c_int = libc::ENOPROTOOPT;
pub const ENOENT: c_int = libc::ENOENT;
pub const EOTHER: c_int = 256;
pub const ETOOSMALL: c_int = 257;
pub const EOPBADSTATE: c_int = 258;
pub const EAVAIL: c_int = 259;
pub const EBADFLAGS: c_int = 260;
pub const ENOEQ: c_int = 261;
pub const EDOMAIN: c_int = 262;
pub const ENOCQ: c_int = 263;
pub const ECRC: c_int = 264;
pub const ETRUNC: c_int = 265;
pub const ENOKEY: c_int = 266;
pub const ENOAV: c_int = 267;
pub const EOVERRUN: c_int = 268;

// -- element types and operations of atomics --
pub const DATATYPES: c_int = 14;
pub const OPERATIONS: c_int = 19;
