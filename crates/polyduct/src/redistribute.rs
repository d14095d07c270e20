//! Regrouping parts that lie in one process: the same plans and kernels, in threads.

use crate::Error;
use polyduct_copy::{as_shared, execute_part, Dest, Source};
use polyduct_layout::{Direction, Mapping, Plan, PlanCache};
use polyduct_os::{cpu, threads};
use std::sync::{Arc, LazyLock};

/// Plans of earlier calls: the same regrouping is usually done again.
static PLANS: LazyLock<PlanCache> = LazyLock::new(|| PlanCache::new(256));

/// Fills the parts of `dst` from the parts of `src`, on all cores that this process may use. `from[u]` is
/// unit `u`'s part in the source mapping, `to[u]` in the destination mapping. Elements that no source holds
/// are left as they are.
///
/// # Errors
/// [`Error::PartSize`] when a part has the wrong size; [`Error::Layout`] when the mappings are of different
/// datasets or the source does not cover the dataset.
pub fn redistribute(src: &Mapping, from: &[&[u8]], dst: &Mapping, to: &mut [&mut [u8]]) -> Result<(), Error> {
    src.check_writer()?;
    check_parts("source", src, from.iter().map(|p| p.len()))?;
    check_parts("destination", dst, to.iter().map(|p| p.len()))?;
    let plans: Vec<Arc<Plan>> =
        (0..dst.units()).map(|u| PLANS.get(src, dst, u, Direction::ToReader)).collect::<Result<_, _>>()?;

    let bytes: u64 = plans.iter().map(|p| p.bytes()).sum();
    // A thread costs about 20 µs: worth it from a few hundred KiB.
    let most = cpu::allowed().len().clamp(1, (bytes >> 18).max(1) as usize);
    let pieces = most.div_ceil(plans.len().max(1));
    let to: Vec<_> = to.iter_mut().map(|part| as_shared(part)).collect();
    let work = |job: usize| -> Result<(), Error> {
        let (unit, piece) = (job / pieces, job % pieces);
        for transfer in plans[unit].transfers() {
            let source = from[transfer.src_unit() as usize];
            for table in transfer.tables() {
                execute_part(&table, piece, pieces, Source::from(source), Dest::from(to[unit]))
                    .map_err(|e| Error::Misuse { what: e.to_string() })?;
            }
        }
        Ok(())
    };
    threads::each(most, 0..plans.len() * pieces, work).into_iter().collect()
}

fn check_parts(
    side: &'static str,
    mapping: &Mapping,
    lens: impl ExactSizeIterator<Item = usize>,
) -> Result<(), Error> {
    if lens.len() as u64 != mapping.units() {
        let what = format!("{} {side} parts for {} units", lens.len(), mapping.units());
        return Err(Error::Misuse { what });
    }
    for (unit, found) in (0u64..).zip(lens) {
        let (expected, found) = (mapping.local_len_bytes(unit)?, found as u64);
        if expected != found {
            return Err(Error::PartSize { side, unit, expected, found });
        }
    }
    Ok(())
}
