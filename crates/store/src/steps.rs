//! Steps of an array as a part of its shape.

/// Whether so many steps are a dimension of what holds them: one is the array itself, unless its steps are
/// always a dimension.
pub(crate) fn are_a_dimension(steps: u64, stepped: bool) -> bool {
    stepped || steps != 1
}

/// The shape of so many arrays of one shape: steps that are a dimension are the first.
pub(crate) fn shape_of(array: &[u64], steps: u64, stepped: bool) -> Vec<u64> {
    let first = are_a_dimension(steps, stepped).then_some(steps);
    first.into_iter().chain(array.iter().copied()).collect()
}
