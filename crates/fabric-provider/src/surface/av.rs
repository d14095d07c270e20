//! Address vectors: what programs call the endpoints that they were told of.

use super::domain::Domain;
use super::{border, border_or, fid_ops, give, object, Core, NOBODY};
use crate::abi::{self, AvAttr, AvFid, AvOps, DomainFid, Fid, FidOps};
use crate::names;
use polyduct_message::endpoint::{Place, PLACE_BYTES};
use std::ffi::{c_char, c_int, c_void};
use std::net::Ipv4Addr;
use std::sync::Arc;

static FID: FidOps = FidOps { bind, ..fid_ops(close) };
static OPS: AvOps = AvOps {
    size: size_of::<AvOps>(),
    insert,
    insertsvc,
    insertsym: abi::none,
    remove,
    lookup,
    straddr,
    av_set: abi::none,
    insert_auth_key: abi::none,
    lookup_auth_key: abi::none,
    set_user_id: abi::none,
};

/// Places by their numbers, in the order in which they came.
#[derive(Default)]
pub(super) struct Vector {
    places: Vec<Option<Place>>,
}

impl Vector {
    /// The place of an address.
    pub fn place(&self, address: u64) -> Option<&Place> {
        self.places.get(usize::try_from(address).ok()?)?.as_ref()
    }

    /// All that are there, by their addresses.
    pub fn known(&self) -> impl Iterator<Item = (u64, &Place)> {
        (0..).zip(&self.places).filter_map(|(address, place)| Some((address, place.as_ref()?)))
    }
}

/// A vector, as it is given out.
#[repr(C)]
pub(super) struct Av {
    fid: AvFid,
    core: Arc<Core>,
    pub index: usize,
}

pub unsafe extern "C" fn open(
    domain: *mut DomainFid,
    attr: *const AvAttr,
    av: *mut *mut AvFid,
    context: *mut c_void,
) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        let (core, attr) = unsafe { (object::<Domain>(domain).core.clone(), attr.as_ref()) };
        // A vector with a name is one that several processes share. What is inserted is there at once: no
        // events tell.
        let is_other =
            |attr: &AvAttr| !attr.name.is_null() || attr.rx_ctx_bits != 0 || attr.flags & abi::EVENT != 0;
        if attr.is_some_and(is_other) {
            return -abi::ENOSYS;
        }
        let index = super::keep(&mut core.enter().inner.vectors, Vector::default());
        let fid = Fid { class: abi::CLASS_AV, context, ops: &raw const FID };
        // SAFETY: the caller's.
        unsafe { give(Av { fid: AvFid { fid, ops: &raw const OPS }, core, index }, av) }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    border(|| {
        // SAFETY: what `open` gave out.
        let av = unsafe { Box::from_raw(fid.cast::<Av>()) };
        av.core.enter().inner.vectors[av.index] = None;
        0
    })
}

/// Nothing is told of it: what is inserted is there at once.
unsafe extern "C" fn bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    0
}

unsafe extern "C" fn insert(
    av: *mut AvFid,
    addresses: *const c_void,
    count: usize,
    to: *mut u64,
    _: u64,
    _: *mut c_void,
) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        let av = unsafe { object::<Av>(av) };
        let places = (0..count).map(|n| {
            // SAFETY: the caller gave so many addresses.
            let bytes = unsafe {
                core::slice::from_raw_parts(addresses.cast::<u8>().add(n * PLACE_BYTES), PLACE_BYTES)
            };
            Place::from_bytes(bytes)
        });
        // SAFETY: the caller gave memory for so many.
        unsafe { av.insert_places(places, to) }
    })
}

unsafe extern "C" fn insertsvc(
    av: *mut AvFid,
    node: *const c_char,
    service: *const c_char,
    to: *mut u64,
    flags: u64,
    _: *mut c_void,
) -> c_int {
    border(|| {
        if node.is_null() && service.is_null() {
            return -abi::EINVAL;
        }
        // SAFETY: the caller's.
        let (av, place) =
            unsafe { (object::<Av>(av), names::named(node, service, flags, Ipv4Addr::LOCALHOST)) };
        // SAFETY: as above.
        unsafe { av.insert_places(std::iter::once(place), to) }
    })
}

impl Av {
    /// Inserts places, and gives out what they are called at `to`, unless that is null. Returns how many are
    /// some.
    ///
    /// # Safety
    /// `to` has room for all.
    unsafe fn insert_places(&self, places: impl Iterator<Item = Option<Place>>, to: *mut u64) -> c_int {
        let entered = self.core.enter();
        let mut inserted = 0;
        for (n, place) in places.enumerate() {
            let Some(Some(vector)) = entered.inner.vectors.get_mut(self.index) else { return -abi::EINVAL };
            let address = match &place {
                Some(known) => {
                    vector.places.push(place);
                    inserted += 1;
                    let address = vector.places.len() as u64 - 1;
                    // Who is heard before it is sent to is called so, too.
                    for ep in
                        entered.inner.eps.iter_mut().flatten().filter(|ep| ep.vector == Some(self.index))
                    {
                        let _ = ep.engine.peer(known, address);
                    }
                    address
                }
                None => abi::ADDR_NOTAVAIL,
            };
            if !to.is_null() {
                // SAFETY: the caller's.
                unsafe { to.add(n).write(address) };
            }
        }
        inserted
    }
}

unsafe extern "C" fn remove(av: *mut AvFid, addresses: *mut u64, count: usize, _: u64) -> c_int {
    border_or(|| {
        // SAFETY: the caller's.
        let av = unsafe { object::<Av>(av) };
        let entered = av.core.enter();
        for n in 0..count {
            // SAFETY: the caller gave so many.
            let address = unsafe { addresses.add(n).read() };
            let vector =
                entered.inner.vectors.get_mut(av.index).and_then(Option::as_mut).ok_or(abi::EINVAL)?;
            let place = usize::try_from(address).ok().and_then(|at| vector.places.get_mut(at));
            let place = place.and_then(Option::take).ok_or(abi::EINVAL)?;
            // It may have been inserted twice.
            let other = vector.known().find(|(_, other)| other.is_same(&place));
            for ep in entered.inner.eps.iter_mut().flatten().filter(|ep| ep.vector == Some(av.index)) {
                ep.engine.forget(address);
                if let Some((other, place)) = other {
                    let _ = ep.engine.peer(place, other);
                }
                if let Some(number) = ep.numbers.get_mut(address as usize) {
                    *number = NOBODY;
                }
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn lookup(av: *mut AvFid, address: u64, to: *mut c_void, len: *mut usize) -> c_int {
    border_or(|| {
        // SAFETY: the caller's.
        let av = unsafe { object::<Av>(av) };
        let entered = av.core.enter();
        let vector = entered.inner.vectors.get(av.index).and_then(Option::as_ref).ok_or(abi::EINVAL)?;
        let place = vector.place(address).ok_or(abi::EINVAL)?;
        // SAFETY: the caller's.
        unsafe { copy_out(place, to, len) };
        Ok(())
    })
}

/// Copies a place, as far as there is room; says how long it is.
///
/// # Safety
/// `len` is that of the memory at `to`.
pub(super) unsafe fn copy_out(place: &Place, to: *mut c_void, len: *mut usize) -> bool {
    let bytes = place.to_bytes();
    // SAFETY: the caller's.
    unsafe {
        let room = len.replace(PLACE_BYTES);
        let fits = room.min(PLACE_BYTES);
        if fits > 0 {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), fits);
        }
        room >= PLACE_BYTES
    }
}

unsafe extern "C" fn straddr(
    _: *mut AvFid,
    address: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: the caller's.
    let bytes = unsafe { core::slice::from_raw_parts(address.cast::<u8>(), PLACE_BYTES) };
    let words = match Place::from_bytes(bytes) {
        Some(Place { draw, at: Some(at), .. }) => format!("polyduct://{at}/{draw:016x}\0"),
        Some(Place { draw, .. }) => format!("polyduct:///{draw:016x}\0"),
        None => "no address of polyduct\0".to_owned(),
    };
    // SAFETY: the caller's.
    unsafe {
        let room = len.replace(words.len());
        if room > 0 {
            let fits = room.min(words.len());
            core::ptr::copy_nonoverlapping(words.as_ptr().cast(), buf, fits);
            buf.add(fits - 1).write(0);
        }
    }
    buf
}
