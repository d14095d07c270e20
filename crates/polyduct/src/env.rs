//! Which unit this process is, from the environment of whatever started it.

use crate::Error;

/// This process's place in its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of this unit, from 0.
    pub unit: u32,
    /// Units of the program.
    pub units: u32,
    /// What the program is called, the same in all its units and no other's.
    pub program: String,
}

/// Variables that launchers set: unit, units, and what tells their jobs apart.
///
/// SLURM's are those of a job step: inside a batch script without `srun` the job's own variables are set too, but there
/// is only one process.
const LAUNCHERS: [(&str, &str, &[&str]); 6] = [
    ("POLYDUCT_UNIT", "POLYDUCT_UNITS", &["POLYDUCT_PROGRAM"]),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"]),
    ("PMI_RANK", "PMI_SIZE", &["PMI_JOBID"]),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", &["SLURM_JOB_ID", "SLURM_STEP_ID"]),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", &[]),
    ("RANK", "WORLD_SIZE", &["TORCHELASTIC_RUN_ID", "MASTER_PORT"]),
];

/// Finds the place of this process. `get` reads a variable; what the caller says goes before what the launcher says.
///
/// Without a launcher a process is unit 0 of 1. The units of one program started by hand with explicit numbers are taken
/// to be children of one process; `POLYDUCT_PROGRAM` or [`Open::program`](crate::Open::program) says otherwise.
///
/// # Errors
/// [`Error::Environment`] when a launcher's variable is no number, or its partner is missing; [`Error::Misuse`] when
/// only one of unit and units is given.
pub fn place(
    unit: Option<u32>,
    units: Option<u32>,
    program: Option<&str>,
    get: impl Fn(&str) -> Option<String>,
) -> Result<Place, Error> {
    let (unit, units, told) = match (unit, units) {
        (Some(unit), Some(units)) => (unit, units, get("POLYDUCT_PROGRAM")),
        (None, None) => from_launcher(&get)?,
        (Some(0), None) => (0, 1, None),
        (Some(_), None) => return Err(Error::Misuse { what: "unit is given without units".into() }),
        (None, Some(_)) => return Err(Error::Misuse { what: "units is given without unit".into() }),
    };
    let program = program.map(str::to_owned).or(told).unwrap_or_else(|| match units {
        1 => format!("process-{}", std::process::id()),
        _ => format!("children-of-{}", std::os::unix::process::parent_id()),
    });
    Ok(Place { unit, units, program })
}

fn from_launcher(get: &impl Fn(&str) -> Option<String>) -> Result<(u32, u32, Option<String>), Error> {
    for (unit_var, units_var, names) in LAUNCHERS {
        let (Some(unit), Some(units)) = (get(unit_var), get(units_var)) else {
            if unit_var.starts_with("POLYDUCT") && (get(unit_var).is_some() || get(units_var).is_some()) {
                let (missing, there) =
                    if get(unit_var).is_none() { (unit_var, units_var) } else { (units_var, unit_var) };
                return Err(Error::Environment {
                    variable: missing.into(),
                    found: format!("nothing, although {there} is set"),
                });
            }
            continue;
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
    Ok((0, 1, get("POLYDUCT_PROGRAM")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vars: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string())
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
        assert_eq!(p, Place { unit: 0, units: 1, program: "mine".into() });
        assert_eq!(place(None, None, None, with(vars)).unwrap().program, "solver");
    }
}
