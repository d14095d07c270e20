//! Finds the number of this unit in the environment of whatever started it.

use crate::Error;
use polyduct_message::hash::fnv1a;
use polyduct_port::PortError;

/// This process's place in its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobUnit {
    /// Number of this unit, from 0.
    pub unit: u32,
    /// Units of the program.
    pub units: u32,
    /// What the program is called, the same in all its units and no other's.
    pub program: String,
}

/// Variables that launchers set: unit, units, and what tells their jobs apart.
///
/// SLURM's are those of a job step: inside a batch script without `srun` the job's own variables are set too,
/// but there is only one process.
const LAUNCHERS: [(&str, &str, &[&str]); 6] = [
    ("POLYDUCT_UNIT", "POLYDUCT_UNITS", &["POLYDUCT_PROGRAM"]),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"]),
    ("PMI_RANK", "PMI_SIZE", &["PMI_JOBID"]),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", &["SLURM_JOB_ID", "SLURM_STEP_ID"]),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", &[]),
    ("RANK", "WORLD_SIZE", &["TORCHELASTIC_RUN_ID", "MASTER_PORT"]),
];

/// Finds the place of this process. `get` reads a variable; what the caller says goes before what the
/// launcher says.
///
/// Without a launcher a process is unit 0 of 1. The units of one program started by hand with explicit
/// numbers are taken to be children of one process; `POLYDUCT_PROGRAM` or
/// [`Open::program`](crate::Open::program) says otherwise.
///
/// # Errors
/// [`Error::Environment`] when a launcher's variable is no number, or says which unit this is without the
/// partner that says of how many (for `polyduct run` also the other way round), and no other launcher says
/// both; [`Error::Misuse`] when only one of unit and units is given; [`PortError::BadOption`] for a unit that
/// is not below units.
pub fn place(
    unit: Option<u32>,
    units: Option<u32>,
    program: Option<&str>,
    get: impl Fn(&str) -> Option<String>,
) -> Result<JobUnit, Error> {
    let (unit, units, told) = match by_hand(unit, units)? {
        Some((0, 1)) if units.is_none() => (0, 1, None),
        Some((unit, units)) => (unit, units, get("POLYDUCT_PROGRAM")),
        None => from_launcher(&get)?,
    };
    // Before any meeting: to the others it would be a stranger. How many units there may be, who opens
    // something says.
    if units > 0 && unit >= units {
        let (found, expected) = (unit.to_string(), format!("below units, {units}").into());
        return Err(PortError::BadOption { port: None, option: "unit", found, expected }.into());
    }
    let program = program.map(str::to_owned).or(told).unwrap_or_else(|| siblings(units));
    Ok(JobUnit { unit, units, program })
}

/// Finds the place of this process in its program's own message domain, and that domain's name, which stands
/// in
/// [`JobUnit::program`]: `name` if the caller gives one, else what tells the launcher's jobs apart. It may
/// also be where the units meet on a network: see [`domain`](crate::domain()).
///
/// `polyduct run` says the name itself, in `POLYDUCT_DOMAIN`. Units that somebody numbers by hand have to be
/// given one: nothing else would keep two such programs apart.
///
/// # Errors
/// As [`place`]; [`Error::Misuse`] for several units numbered by hand without a name.
pub fn domain_place(
    unit: Option<u32>,
    units: Option<u32>,
    name: Option<&str>,
    get: impl Fn(&str) -> Option<String>,
) -> Result<JobUnit, Error> {
    let hand = by_hand(unit, units)?;
    let (unit, units, told) = match hand {
        Some((unit, units)) => (unit, units, None),
        None => from_launcher(&get)?,
    };
    let named =
        name.map(str::to_owned).or_else(|| get("POLYDUCT_DOMAIN").filter(|_| units > 1 || hand.is_none()));
    let program = match (named, told) {
        (Some(name), _) => name,
        (None, Some(told)) => tidy(&told),
        (None, None) if hand.is_some() && units > 1 => {
            let what =
                "units that no launcher has numbered need the name of their domain, or its URL, the same in \
                    all of them";
            return Err(Error::Misuse { what: what.into() });
        }
        (None, None) => siblings(units),
    };
    Ok(JobUnit { unit, units, program })
}

/// Variables in which batch systems number their jobs, whatever programs run in them. (What mpiexec and
/// torchrun number is each start of a program, and two programs that are to meet are two of those.)
const JOBS: [&str; 4] = ["POLYDUCT_JOB", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];

/// The job that names of pipes belong to, so that two jobs on one host may use the same ones; empty outside
/// of any. `polyduct run` and batch systems say it; `POLYDUCT_JOB` goes before the others, and set to nothing
/// it says none.
pub fn job(get: impl Fn(&str) -> Option<String>) -> String {
    JOBS.iter().find_map(|name| get(name)).unwrap_or_default()
}

/// The same of this process.
pub fn own_job() -> String {
    job(|name| std::env::var(name).ok())
}

/// Unit and units, as the caller gives them.
fn by_hand(unit: Option<u32>, units: Option<u32>) -> Result<Option<(u32, u32)>, Error> {
    match (unit, units) {
        (Some(unit), Some(units)) => Ok(Some((unit, units))),
        (None, None) => Ok(None),
        (Some(0), None) => Ok(Some((0, 1))),
        (Some(_), None) => Err(Error::Misuse { what: "unit is given without units".into() }),
        (None, Some(_)) => Err(Error::Misuse { what: "units is given without unit".into() }),
    }
}

/// A name for units that have nothing in common but their parent.
fn siblings(units: u32) -> String {
    match units {
        1 => format!("process-{}", std::process::id()),
        _ => polyduct_os::process::unnamed_program(),
    }
}

/// What a launcher calls its job, as the name of a domain: 64 letters, digits, `.`, `_`, `-` at most.
/// Different jobs keep different names.
fn tidy(told: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if told.len() <= 64 && told.chars().all(good) {
        return told.to_owned();
    }
    // All units, whatever their version, must come to the same.
    let hash = fnv1a(told.bytes());
    let start: String = told.chars().map(|c| if good(c) { c } else { '_' }).take(47).collect();
    format!("{start}-{hash:016x}")
}

fn from_launcher(get: &impl Fn(&str) -> Option<String>) -> Result<(u32, u32, Option<String>), Error> {
    let partner_missing = |missing: &str, there: &str| Error::Environment {
        variable: missing.into(),
        found: format!("nothing, although {there} is set"),
    };
    let mut half = None;
    for (unit_var, units_var, names) in LAUNCHERS {
        let ours = unit_var.starts_with("POLYDUCT");
        let (unit, units) = match (get(unit_var), get(units_var)) {
            (Some(unit), Some(units)) => (unit, units),
            (None, Some(_)) if ours => return Err(partner_missing(unit_var, units_var)),
            (Some(_), None) if ours => return Err(partner_missing(units_var, unit_var)),
            // A batch script has the first, without being one of the units that `srun` starts.
            (Some(unit), None) if unit_var == "SLURM_PROCID" && unit.trim() == "0" => continue,
            (Some(_), None) => {
                half.get_or_insert_with(|| partner_missing(units_var, unit_var));
                continue;
            }
            (None, _) => continue,
        };
        let number = |variable: &str, text: &str| {
            text.trim()
                .parse()
                .map_err(|_| Error::Environment { variable: variable.into(), found: format!("{text:?}") })
        };
        let (unit, units) = (number(unit_var, &unit)?, number(units_var, &units)?);
        let told: Vec<String> = names.iter().filter_map(|n| get(n)).collect();
        return Ok((unit, units, (!told.is_empty()).then(|| told.join("."))));
    }
    // Each unit would take itself for the only one, and the program would do its work once for each.
    match half {
        Some(error) => Err(error),
        None => Ok((0, 1, get("POLYDUCT_PROGRAM"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vars: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string())
    }

    fn domain(vars: &'static [(&str, &str)]) -> String {
        domain_place(None, None, None, with(vars)).unwrap().program
    }

    #[test]
    fn a_domain_is_named_after_the_job() {
        let run: &[_] = &[
            ("POLYDUCT_UNIT", "1"),
            ("POLYDUCT_UNITS", "2"),
            ("POLYDUCT_PROGRAM", "run-1-s0"),
            ("POLYDUCT_DOMAIN", "run-1-stage-0"),
        ];
        assert_eq!(domain(run), "run-1-stage-0");
        let slurm: &[_] = &[
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "6"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "3"),
        ];
        assert_eq!(domain(slurm), "77.3");
        let torch: &[_] =
            &[("RANK", "0"), ("WORLD_SIZE", "2"), ("TORCHELASTIC_RUN_ID", "none"), ("MASTER_PORT", "29500")];
        assert_eq!(domain(torch), "none.29500");
        let open_mpi: &[_] = &[
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("PMIX_NAMESPACE", "prterun-host-12@1"),
        ];
        let other: &[_] = &[
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("PMIX_NAMESPACE", "prterun-host-12:1"),
        ];
        assert!(domain(open_mpi).starts_with("prterun-host-12_1-"));
        assert_ne!(domain(open_mpi), domain(other));
        assert_eq!(domain(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), siblings(2));
        assert_eq!(domain(&[]), siblings(1));
        assert!(tidy(&"ü".repeat(500)).len() <= 64);
    }

    #[test]
    fn names_belong_to_the_job() {
        assert_eq!(job(with(&[])), "");
        assert_eq!(job(with(&[("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "3")])), "77");
        assert_eq!(job(with(&[("POLYDUCT_JOB", "mine"), ("SLURM_JOB_ID", "77")])), "mine");
        assert_eq!(job(with(&[("POLYDUCT_JOB", ""), ("SLURM_JOB_ID", "77")])), "");
        // Two programs that each have an mpiexec of their own are to meet.
        assert_eq!(job(with(&[("PMIX_NAMESPACE", "prterun-host-12@1"), ("PMI_JOBID", "a")])), "");
    }

    #[test]
    fn units_numbered_by_hand_name_their_domain() {
        let given = |name| domain_place(Some(1), Some(2), name, with(&[]));
        assert!(matches!(given(None), Err(Error::Misuse { .. })));
        assert_eq!(given(Some("mine")).unwrap(), JobUnit { unit: 1, units: 2, program: "mine".into() });
        let alone =
            domain_place(Some(0), Some(1), None, with(&[("POLYDUCT_DOMAIN", "run-1-stage-0")])).unwrap();
        assert_eq!(alone.program, siblings(1), "the stage's domain has other units");
        assert!(matches!(domain_place(Some(1), None, Some("x"), with(&[])), Err(Error::Misuse { .. })));
    }

    fn found(vars: &'static [(&str, &str)]) -> (u32, u32) {
        let p = place(None, None, None, with(vars)).unwrap();
        (p.unit, p.units)
    }

    #[test]
    fn each_launcher_is_understood() {
        assert_eq!(
            found(&[("POLYDUCT_UNIT", "2"), ("POLYDUCT_UNITS", "3"), ("RANK", "0"), ("WORLD_SIZE", "9")]),
            (2, 3)
        );
        assert_eq!(found(&[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")]), (1, 4));
        assert_eq!(found(&[("PMI_RANK", "1"), ("PMI_SIZE", "5")]), (1, 5));
        assert_eq!(found(&[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "6")]), (1, 6));
        assert_eq!(found(&[("RANK", "7"), ("WORLD_SIZE", "8")]), (7, 8));
        assert_eq!(found(&[]), (0, 1));
    }

    #[test]
    fn a_batch_script_without_srun_is_one_process() {
        assert_eq!(found(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "64")]), (0, 1));
        assert_eq!(found(&[("SLURM_PROCID", "0"), ("RANK", "3"), ("WORLD_SIZE", "4")]), (3, 4));
    }

    #[test]
    fn a_rank_without_a_size_is_an_error_unless_another_launcher_says_both() {
        for (vars, missing) in [
            (&[("PMI_RANK", "1")] as &'static [_], "PMI_SIZE"),
            (&[("RANK", "3")], "WORLD_SIZE"),
            (&[("OMPI_COMM_WORLD_RANK", "0")], "OMPI_COMM_WORLD_SIZE"),
            (&[("MV2_COMM_WORLD_RANK", "0")], "MV2_COMM_WORLD_SIZE"),
            (&[("SLURM_PROCID", "2"), ("SLURM_NTASKS", "64")], "SLURM_STEP_NUM_TASKS"),
        ] {
            for e in [place(None, None, None, with(vars)), domain_place(None, None, None, with(vars))] {
                let e = e.unwrap_err();
                assert!(matches!(&e, Error::Environment { variable, .. } if variable == missing), "{e}");
                assert!(e.to_string().contains(vars[0].0), "{e}");
            }
            assert_eq!(place(Some(1), Some(2), None, with(vars)).unwrap().unit, 1, "said by hand");
        }
        assert_eq!(found(&[("PMI_RANK", "1"), ("RANK", "3"), ("WORLD_SIZE", "4")]), (3, 4));
        assert_eq!(found(&[("WORLD_SIZE", "4")]), (0, 1), "a size alone says nothing of this process");
    }

    #[test]
    fn half_an_environment_is_an_error() {
        let e = place(None, None, None, with(&[("POLYDUCT_UNIT", "2")])).unwrap_err();
        assert!(matches!(e, Error::Environment { variable, .. } if variable == "POLYDUCT_UNITS"));
        let e = place(None, None, None, with(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")])).unwrap_err();
        assert!(matches!(e, Error::Environment { variable, .. } if variable == "PMI_RANK"));
        assert!(matches!(place(Some(1), None, None, with(&[])), Err(Error::Misuse { .. })));
    }

    #[test]
    fn arguments_go_before_the_environment() {
        let vars: &[_] = &[("POLYDUCT_UNIT", "2"), ("POLYDUCT_UNITS", "3"), ("POLYDUCT_PROGRAM", "solver")];
        let p = place(Some(0), Some(1), Some("mine"), with(vars)).unwrap();
        assert_eq!(p, JobUnit { unit: 0, units: 1, program: "mine".into() });
        assert_eq!(place(None, None, None, with(vars)).unwrap().program, "solver");
    }
}
