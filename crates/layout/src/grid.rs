//! Grids of units: the default shape.

/// Splits `units` over `axes` axes as `MPI_Dims_create` does: sizes as close to each other as possible,
/// falling. Of all ways it takes the one with the smallest largest size, then the smallest second, and so on.
pub(crate) fn dims_create(units: u64, axes: usize) -> Vec<u64> {
    let divisors = divisors(units);
    let mut sizes = Vec::with_capacity(axes);
    let (mut rest, mut cap) = (units, units);
    for left in (1..=axes).rev() {
        let size = divisors
            .iter()
            .copied()
            .filter(|&d| d <= cap && rest % d == 0)
            .find(|&d| fits(rest / d, left - 1, d, &divisors))
            .unwrap_or(rest);
        sizes.push(size);
        (rest, cap) = (rest / size, size);
    }
    sizes
}

/// Whether `n` is a product of `axes` divisors, none above `cap`.
fn fits(n: u64, axes: usize, cap: u64, divisors: &[u64]) -> bool {
    if n == 1 {
        return true;
    }
    if axes == 0 || u128::from(cap).checked_pow(axes as u32).is_some_and(|most| most < u128::from(n)) {
        return false;
    }
    // Largest first: a product that fits at all mostly fits so.
    let upto = divisors.partition_point(|&d| d <= cap);
    divisors[..upto].iter().rev().any(|&d| d > 1 && n.is_multiple_of(d) && fits(n / d, axes - 1, d, divisors))
}

/// All divisors, rising. `n` is below 2^32 or so: trial division takes at most 2^16 steps.
fn divisors(n: u64) -> Vec<u64> {
    let small: Vec<u64> = (1..).take_while(|d| d * d <= n).filter(|d| n.is_multiple_of(*d)).collect();
    let large = small.iter().rev().filter(|d| *d * *d != n).map(|d| n / d);
    small.iter().copied().chain(large).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_and_falling() {
        for (units, axes, want) in [
            (6, 2, vec![3, 2]),
            (12, 2, vec![4, 3]),
            (72, 2, vec![9, 8]),
            (16, 3, vec![4, 2, 2]),
            (7, 3, vec![7, 1, 1]),
            (1, 2, vec![1, 1]),
            (1024, 3, vec![16, 8, 8]),
            (768, 3, vec![12, 8, 8]),
        ] {
            assert_eq!(dims_create(units, axes), want);
        }
    }

    #[test]
    fn any_number_is_split_fast() {
        for units in [4_294_967_291u64, 4_294_967_296, 3_491_888_400, 2 * 2_147_483_647, 65_521 * 65_519] {
            for axes in 1..=8 {
                let sizes = dims_create(units, axes);
                assert_eq!(sizes.iter().product::<u64>(), units);
                assert!(sizes.windows(2).all(|w| w[0] >= w[1]));
            }
        }
    }
}
