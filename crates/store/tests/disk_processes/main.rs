//! Several processes that use a store at once, in ways that threads of one do not.

mod limits;
mod read_only;
mod replaced;
mod turns;

use limits::{
    few_descriptors_cost_no_unit, many_arrays_need_few_descriptors, who_may_not_use_a_unit_makes_it_no_worse,
};
use polyduct_rig::tests;
use read_only::{
    units_that_can_only_be_read_are_read_and_nothing_changes,
    what_can_only_be_read_is_read_and_nothing_changes,
};
use replaced::{
    a_unit_is_replaced_beside_writers, a_writer_that_was_open_while_a_unit_was_replaced_keeps_it,
};
use std::path::Path;
use turns::who_waits_for_a_stopped_process_is_told_which;

fn main() {
    let unit = |spec: &str| match spec.split_once(' ') {
        Some(("limited", dir)) => limits::unit(Path::new(dir)),
        Some(("turn", dir)) => turns::unit(Path::new(dir)),
        Some(("reads", dir)) => read_only::unit(Path::new(dir)),
        Some(("looks", dir)) => read_only::looks(Path::new(dir)),
        Some(("many", rest)) => {
            let (n, dir) = rest.split_once(' ').unwrap();
            limits::many(Path::new(dir), n.parse().unwrap());
        }
        _ => replaced::unit(spec),
    };
    polyduct_rig::main(
        unit,
        tests![
            a_writer_that_was_open_while_a_unit_was_replaced_keeps_it,
            a_unit_is_replaced_beside_writers,
            few_descriptors_cost_no_unit,
            who_may_not_use_a_unit_makes_it_no_worse,
            many_arrays_need_few_descriptors,
            what_can_only_be_read_is_read_and_nothing_changes,
            units_that_can_only_be_read_are_read_and_nothing_changes,
            who_waits_for_a_stopped_process_is_told_which,
        ],
    );
}
