//! `polyduct_options` and `polyduct_domain_options`, as builders of the façade.

use crate::args::{dims, maybe_text, natural, seconds, shape, sized, unit};
use crate::attributes;
use crate::error::Failure;
use crate::guard::{Guard, Question, User};
use crate::types;
use polyduct::message::domain::OnLoss;
use polyduct::message::link::key::{JobKey, KeyError, Trust};
use polyduct::store::zarr::Compression;
use polyduct::{JobUnit, Join, Open, Readers};
use std::ffi::{c_char, c_int, c_void};

/// Options of a port, as the header has them.
#[repr(C)]
pub struct Options {
    struct_size: usize,
    unit: i32,
    units: i32,
    program: *const c_char,
    job: *const c_char,
    policy: *const c_char,
    on_loss: *const c_char,
    depth: i32,
    readers: i32,
    timeout: f64,
    interrupt: Question,
    interrupt_user: *mut c_void,
    append: i32,
    stepped: i32,
    convert: i32,
    elem: i32,
    ndim: i32,
    chunk_ndim: i32,
    shape: *const i64,
    chunks: *const i64,
    compress: *const c_char,
    shard_bytes: i64,
    attributes: *const c_char,
    dims: *const c_char,
    key: *const c_char,
    trusted_network: i32,
    reserved: i32,
}

/// Unit and units that the caller says.
fn said(of: i32, units: i32) -> Result<(Option<u32>, Option<u32>), Failure> {
    match units {
        0 => Ok((None, None)),
        units => Ok((Some(unit("unit", of)?), Some(unit("units", units)?))),
    }
}

/// The job's key and whether the network is trusted, where the caller says the key; else the environment
/// says both.
///
/// # Safety
/// As [`maybe_text`].
unsafe fn trust(key: *const c_char, trusted_network: i32) -> Result<Option<Trust>, Failure> {
    // SAFETY: as the caller promises.
    let key = unsafe { maybe_text("key", key) }?;
    let wrong = |e: KeyError| Failure::option("key", format!("key: {e}"));
    let trusted_network = trusted_network != 0;
    match key {
        None if trusted_network => {
            let text =
                "trusted_network: no key is given with it; without one POLYDUCT_TRUSTED_NETWORK says it";
            Err(Failure::option("trusted_network", text.into()))
        }
        None => Ok(None),
        Some(key) => Ok(Some(Trust { key: JobKey::from_hex(key).map_err(wrong)?, trusted_network })),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Whether options were given, and what they ask of an array that is read.
#[derive(Default)]
pub struct Expected {
    /// Its shape.
    pub shape: Option<Vec<u64>>,
    /// The number of its type.
    pub elem: c_int,
    /// Whether it is converted to that.
    pub convert: bool,
}

/// A builder for the port at `url`, whose waits `guard` ends; the place of this unit; and what is expected.
///
/// # Safety
/// The structure is NULL, or what the header says.
pub unsafe fn open(
    url: &str,
    options: *const Options,
    guard: &Guard,
) -> Result<(Open, JobUnit, Expected), Failure> {
    // SAFETY: as the caller promises; any bytes are a structure of numbers and pointers.
    let Some(given) = (unsafe { sized("options", options) })? else {
        let place = polyduct::place(None, None, None, variable)?;
        let open = polyduct::open(url).unit(place.unit).units(place.units).program(&place.program);
        let ask = guard.interrupt(None, User(std::ptr::null_mut()));
        return Ok((open.interrupt(ask), place, Expected::default()));
    };
    let (this, units) = said(given.unit, given.units)?;
    // SAFETY: text of the caller's.
    let texts = unsafe {
        (
            maybe_text("program", given.program)?,
            maybe_text("job", given.job)?,
            maybe_text("policy", given.policy)?,
            maybe_text("on_loss", given.on_loss)?,
            maybe_text("compress", given.compress)?,
        )
    };
    let (program, job, policy, on_loss, compress) = texts;
    let place = polyduct::place(this, units, program, variable)?;
    let mut open = polyduct::open(url)
        .unit(place.unit)
        .units(place.units)
        .program(&place.program)
        .append(given.append != 0)
        .stepped(given.stepped != 0)
        .interrupt(guard.interrupt(given.interrupt, User(given.interrupt_user)));
    if let Some(job) = job {
        open = open.job(job);
    }
    if let Some(policy) = policy {
        open = open.policy(policy.parse()?);
    }
    if let Some(on_loss) = on_loss {
        open = open.on_loss(on_loss.parse()?);
    }
    if let Some(compress) = compress {
        let wrong = |e: polyduct::store::zarr::UnknownCompression| Failure::option("compress", e.to_string());
        open = open.compress(compress.parse::<Compression>().map_err(wrong)?);
    }
    if given.depth != 0 {
        open = open.depth(unit("depth", given.depth)?);
    }
    open = match given.readers {
        0 => open,
        -1 => open.readers(Readers::Any),
        readers => open.readers(unit("readers", readers)?),
    };
    if let Some(timeout) = seconds("timeout", given.timeout)? {
        open = open.timeout(timeout);
    }
    if !given.chunks.is_null() {
        // SAFETY: as many numbers as the caller says.
        open = open.chunks(Some(unsafe { shape("chunks", given.chunk_ndim, given.chunks) }?));
    }
    if given.shard_bytes != 0 {
        open = open.shard_bytes(natural("shard_bytes", given.shard_bytes)?);
    }
    // SAFETY: text of the caller's.
    unsafe {
        if let Some(trust) = trust(given.key, given.trusted_network)? {
            open = open.trust(trust);
        }
        if let Some(notes) = attributes::notes(given.attributes, given.dims)? {
            // Of one array, or of all that are written together.
            open = open.attributes(notes.attributes.clone()).dims(notes.dims.clone()).note_array("", notes);
        }
    }
    let expected = Expected {
        // SAFETY: as many numbers as the caller says.
        shape: unsafe { maybe_shape(given.ndim, given.shape) }?,
        elem: given.elem,
        convert: given.convert != 0,
    };
    Ok((open, place, expected))
}

/// A shape that may be left out. One without dimensions is given by a pointer, too.
///
/// # Safety
/// As [`shape`].
pub unsafe fn maybe_shape(ndim: i32, at: *const i64) -> Result<Option<Vec<u64>>, Failure> {
    dims("shape", ndim)?;
    match at.is_null() {
        true => Ok(None),
        // SAFETY: as the caller promises.
        false => unsafe { shape("shape", ndim, at) }.map(Some),
    }
}

impl Expected {
    /// Has a reader expect it.
    pub fn of(self, mut open: Open) -> Result<Open, Failure> {
        if let Some(shape) = &self.shape {
            open = open.shape(shape);
        }
        if let Some(elem) = types::maybe(self.elem)? {
            open = open.elem(elem);
        }
        Ok(open.convert(self.convert))
    }
}

/// The layout that was given; without one, the only unit has everything.
pub fn layout_of<'a>(given: Option<&'a str>, place: &JobUnit) -> Result<&'a str, Failure> {
    match given {
        None if place.units > 1 => {
            let JobUnit { unit, units, .. } = place;
            let text = format!(
                "layout: none given, but this is unit {unit} of {units}; say what each has, as \"block,...\" or \
                 \"...\" for everything"
            );
            Err(Failure::option("layout", text))
        }
        given => Ok(given.unwrap_or("...")),
    }
}

/// Options of a domain, as the header has them.
#[repr(C)]
pub struct DomainOptions {
    struct_size: usize,
    unit: i32,
    units: i32,
    name: *const c_char,
    on_loss: *const c_char,
    timeout: f64,
    open_timeout: f64,
    interrupt: Question,
    interrupt_user: *mut c_void,
    key: *const c_char,
    trusted_network: i32,
    reserved: i32,
}

/// A builder for a domain, whose waits `guard` ends. Of a port's, name and numbers are the port's.
///
/// # Safety
/// The structure is NULL, or what the header says.
pub unsafe fn join(options: *const DomainOptions, guard: &Guard, of_port: bool) -> Result<Join, Failure> {
    // SAFETY: as the caller promises; any bytes are a structure of numbers and pointers.
    let given = unsafe { sized("options", options) }?;
    let (question, user) = match &given {
        Some(given) => (given.interrupt, given.interrupt_user),
        None => (None, std::ptr::null_mut()),
    };
    let mut join = polyduct::domain().interrupt(guard.interrupt(question, User(user)));
    let Some(given) = given else { return Ok(join) };
    let (this, units) = said(given.unit, given.units)?;
    // SAFETY: text of the caller's.
    let (name, on_loss) = unsafe { (maybe_text("name", given.name)?, maybe_text("on_loss", given.on_loss)?) };
    if of_port && (name.is_some() || units.is_some()) {
        return Err(Failure::misuse("the domain of a port takes name, unit and units from the port"));
    }
    if let (Some(this), Some(units)) = (this, units) {
        join = join.unit(this).units(units);
    }
    if let Some(name) = name {
        join = join.name(name);
    }
    // SAFETY: text of the caller's.
    if let Some(trust) = unsafe { trust(given.key, given.trusted_network) }? {
        join = join.trust(trust);
    }
    join = match on_loss {
        None | Some("raise") => join,
        Some("continue") => join.on_loss(OnLoss::Continue),
        Some(other) => {
            let text = format!("on_loss is {other:?}; expected \"raise\" or \"continue\"");
            return Err(Failure::option("on_loss", text));
        }
    };
    if let Some(timeout) = seconds("timeout", given.timeout)? {
        join = join.timeout(timeout);
    }
    if let Some(timeout) = seconds("open_timeout", given.open_timeout)? {
        join = join.open_timeout(timeout);
    }
    Ok(join)
}
