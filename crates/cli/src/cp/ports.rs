//! Copies between two ports: in stretches where both have them, so that a step takes no memory; else in whole
//! steps.

use super::ends::{Source, Target};
use super::stretches::Stretches;
use super::{port, CpArgs, CpError, Moved};
use crate::layout::{Dataset, LayoutError};
use polyduct::PortError;
use polyduct::{Error, Reader};

/// Copies what a unit has to copy; gives the number of steps.
pub fn copy_unit(args: &CpArgs, unit: u32, moved: &Moved) -> Result<u64, CpError> {
    let mut source = Source::open(args, unit, "in")?;
    let mut target = Target::open(args, unit, &source)?;
    if unit == 0 {
        target.say_what_is_lost(&source);
        moved.expect(source.steps().unwrap_or(0).saturating_mul(source.dataset().len_bytes()));
    }
    let stretches = Stretches::between(args, unit, &source, &target);
    let outcome = match stretches {
        Some(stretches) => stretches.copy(&mut source, &mut target, moved),
        None => in_steps(args, &mut source, &mut target, moved),
    };
    let outcome = outcome.and_then(|count| target.check_dims(&source, count).map(|()| count));
    let count = match outcome {
        Ok(count) => count,
        Err(error) => {
            // What is not whole must not appear under its name.
            target.abort(&error);
            return Err(error);
        }
    };
    target.close()?;
    source.close()?;
    Ok(count)
}

/// Where the stretches of a unit begin: they are dealt round.
fn dealt(args: &CpArgs, unit: u32, dataset: &Dataset, stretch: u64) -> impl Iterator<Item = (u64, usize)> {
    let (len, apart) = (dataset.len_bytes(), stretch.saturating_mul(args.units.into()));
    let first = stretch.checked_mul(unit.into());
    std::iter::successors(first, move |at| at.checked_add(apart))
        .take_while(move |&at| at < len)
        .map(move |at| (at, stretch.min(len - at) as usize))
}

/// Copies in whole steps, by way of memory; gives the number of steps.
pub fn in_steps(
    args: &CpArgs,
    source: &mut Source<'_>,
    target: &mut Target<'_>,
    moved: &Moved,
) -> Result<u64, CpError> {
    let own = if target.has_slots() { 0 } else { source.local_len_bytes() };
    let mut part = room(own, &args.src)?;
    let mut count = 0;
    while let Some(len) = target.write_from(source, &mut part)? {
        moved.add(len as u64);
        count += 1;
    }
    Ok(count)
}

/// Reads both sides again and compares them; gives the number of steps.
pub fn compare_unit(args: &CpArgs, unit: u32, moved: &Moved) -> Result<u64, CpError> {
    let of_dst = of_port(&args.dst);
    let Some(left) = Source::open(args, unit, "verify-in")?.into_port() else {
        return Err(CpError::VerifyStream);
    };
    let dataset = *left.dataset();
    let right = port(args, &args.dst, unit, "verify-out").shape(dataset.shape()).elem(dataset.elem());
    let right = right.read(args.layout()).map_err(of_dst)?;
    if unit == 0 {
        moved.expect(left.steps().unwrap_or(0).saturating_mul(dataset.len_bytes()));
    }
    compare_ports(args, unit, left, right, moved)
}

/// Compares an array of both sides; gives the number of steps.
pub fn compare_ports(
    args: &CpArgs,
    unit: u32,
    mut left: Reader,
    mut right: Reader,
    moved: &Moved,
) -> Result<u64, CpError> {
    let dataset = *left.dataset();
    let (src, dst) = (args.src.clone(), args.dst.clone());
    let stretches = left.stretch_len().zip(right.stretch_len());
    let (Some((of_left, of_right)), Some(steps)) = (stretches, left.steps()) else {
        return compare_steps(args, unit, left, right, moved);
    };
    if right.steps() != Some(steps) {
        return Err(CpError::Steps { src, dst });
    }
    let (mut left, mut right) = (Loaded::new(&mut left, of_left), Loaded::new(&mut right, of_right));
    for step in 0..steps {
        for (begin, len) in dealt(args, unit, &dataset, of_left.max(of_right)) {
            let (mut at, end) = (begin, begin + len as u64);
            while at < end {
                let (a, b) = (left.from(step, at, &args.src)?, right.from(step, at, &args.dst)?);
                let len = a.len().min(b.len()).min((end - at) as usize).max(1);
                if let Some(differ) = first_difference(&a[..len.min(a.len())], &b[..len.min(b.len())]) {
                    let place = format!("byte {} of the row-major array", at + differ as u64);
                    return Err(CpError::Differ { src, dst, step, place });
                }
                moved.add(len as u64);
                at += len as u64;
            }
        }
    }
    Ok(steps)
}

/// A reader, and the stretch of it that was read last.
struct Loaded<'a> {
    reader: &'a mut Reader,
    stretch: u64,
    bytes: Vec<u8>,
    of: Option<(u64, u64)>,
}

impl<'a> Loaded<'a> {
    fn new(reader: &'a mut Reader, stretch: u64) -> Loaded<'a> {
        Loaded { reader, stretch: stretch.max(1), bytes: Vec::new(), of: None }
    }

    /// Bytes of a step from one on, as many as there are in its stretch.
    fn from(&mut self, step: u64, at: u64, url: &str) -> Result<&[u8], CpError> {
        let begin = at - at % self.stretch;
        if self.of != Some((step, begin)) {
            self.of = None;
            let len = self.stretch.min(self.reader.dataset().len_bytes().saturating_sub(begin));
            if self.bytes.capacity() < len as usize {
                self.bytes = room(len, url)?;
            }
            self.bytes.resize(len as usize, 0);
            let read = self.reader.read_stretch(step, begin, &mut self.bytes);
            read.map_err(of_port(url))?;
            self.of = Some((step, begin));
        }
        Ok(self.bytes.get((at - begin) as usize..).unwrap_or_default())
    }
}

fn compare_steps(
    args: &CpArgs,
    unit: u32,
    mut left: Reader,
    mut right: Reader,
    moved: &Moved,
) -> Result<u64, CpError> {
    let (of_src, of_dst) = (of_port(&args.src), of_port(&args.dst));
    let (src, dst) = (args.src.clone(), args.dst.clone());
    let mut a = room(left.local_len_bytes() as u64, &args.src)?;
    let mut b = room(right.local_len_bytes() as u64, &args.dst)?;
    for step in 0.. {
        match (left.read(&mut a).map_err(&of_src)?, right.read(&mut b).map_err(&of_dst)?) {
            (None, None) => return Ok(step),
            (Some(_), Some(_)) => {
                if let Some(at) = first_difference(&a, &b) {
                    let place = format!("byte {at} of the part of unit {unit}");
                    return Err(CpError::Differ { src, dst, step, place });
                }
                moved.add(a.len() as u64);
            }
            _ => return Err(CpError::Steps { src, dst }),
        }
    }
    Ok(0)
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b {
        return None;
    }
    Some(a.iter().zip(b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len())))
}

/// A buffer, or an error that says what for.
pub fn room(bytes: u64, url: &str) -> Result<Vec<u8>, CpError> {
    let mut room = Vec::new();
    let none = || CpError::NoMemory { url: url.to_owned(), bytes };
    let len = usize::try_from(bytes).map_err(|_| none())?;
    room.try_reserve_exact(len).map_err(|_| none())?;
    room.resize(len, 0);
    Ok(room)
}

/// An error of the port at `url`.
pub fn of_port(url: &str) -> impl Fn(Error) -> CpError + '_ {
    move |error| CpError::Port { url: url.to_owned(), source: error.into() }
}

/// An error at opening `url`, where a layout that is wrong is the option's fault and not the array's.
pub fn at_open(url: &str) -> impl Fn(Error) -> CpError + '_ {
    use LayoutError::{DatasetTooLarge, TooManyDims};
    move |error| {
        let of_layout = match &error {
            Error::Layout(e) | Error::Port(PortError::Layout { source: e, .. }) => Some(e),
            _ => None,
        };
        match of_layout.filter(|e| !matches!(e, DatasetTooLarge { .. } | TooManyDims { .. })) {
            Some(e) => CpError::Layout(e.clone()),
            None => of_port(url)(error),
        }
    }
}
