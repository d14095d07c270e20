//! Byte order: elements whose components stand the other way round in what is read.

use polyduct_layout::ElemType;

/// Bytes of what has a byte order in an element: of a complex number each part has its own, and of plain
/// bytes nothing has one.
pub fn component_len(elem: ElemType) -> usize {
    match elem {
        ElemType::Bytes(_) => 1,
        ElemType::C64 => 4,
        ElemType::C128 => 8,
        elem => elem.len_bytes() as usize,
    }
}

/// Turns each whole component round.
pub fn swap(bytes: &mut [u8], component: usize) {
    // With the length known, the compiler turns a run of them with vector instructions.
    fn each<const N: usize>(bytes: &mut [u8]) {
        bytes.chunks_exact_mut(N).for_each(<[u8]>::reverse);
    }
    match component {
        0 | 1 => {}
        2 => each::<2>(bytes),
        4 => each::<4>(bytes),
        8 => each::<8>(bytes),
        n => bytes.chunks_exact_mut(n).for_each(<[u8]>::reverse),
    }
}

/// Fills `buffer` with bytes from `at` on of an array whose components are turned round. Both ends may lie
/// within a component: `read` is asked for whole ones, and `at` counts from where one begins.
///
/// # Errors
/// Those of `read`.
pub fn read_swapped<E>(
    buffer: &mut [u8],
    at: u64,
    component: usize,
    mut read: impl FnMut(&mut [u8], u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut one = [0; 16];
    let Some(one) = one.get_mut(..component).filter(|one| one.len() > 1) else { return read(buffer, at) };
    let (mut rest, mut at) = (buffer, at);
    while !rest.is_empty() {
        let within = (at % component as u64) as usize;
        let whole = rest.len() - rest.len() % component;
        let take = if within == 0 && whole > 0 { whole } else { (component - within).min(rest.len()) };
        let (now, later) = rest.split_at_mut(take);
        if within == 0 && whole > 0 {
            read(now, at)?;
            swap(now, component);
        } else {
            read(one, at - within as u64)?;
            swap(one, component);
            now.copy_from_slice(&one[within..within + take]);
        }
        (rest, at) = (later, at + take as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_window_is_that_of_the_turned_array() {
        for component in [1, 2, 4, 8] {
            let from: Vec<u8> = (0..64).collect();
            let mut whole = from.clone();
            // The oracle: byte i of a component is byte `component - 1 - i`.
            for (i, to) in whole.iter_mut().enumerate() {
                *to = from[i - i % component + (component - 1 - i % component)];
            }
            for begin in 0..40 {
                for end in begin..=64 {
                    let mut window = vec![0xee; end - begin];
                    let read = |to: &mut [u8], at: u64| {
                        to.copy_from_slice(from.get(at as usize..at as usize + to.len()).ok_or(())?);
                        Ok::<(), ()>(())
                    };
                    read_swapped(&mut window, begin as u64, component, read).unwrap();
                    assert_eq!(window, whole[begin..end], "{component} {begin}..{end}");
                }
            }
        }
    }

    #[test]
    fn each_part_of_a_complex_number_has_its_order_and_bytes_have_none() {
        for (elem, len) in [
            (ElemType::C64, 4),
            (ElemType::C128, 8),
            (ElemType::Bytes(8), 1),
            (ElemType::F16, 2),
            (ElemType::Bool, 1),
        ] {
            assert_eq!(component_len(elem), len, "{elem}");
        }
    }
}
