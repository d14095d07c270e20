use super::*;

fn plan(text: &str) -> Plan {
    let site = Site { run: "run-x", polyduct: Path::new("/bin/polyduct"), directory: Path::new("/d") };
    Plan::new(&Pipeline::parse(text).unwrap(), &site)
}

fn var<'a>(process: &'a Process, name: &str) -> Option<&'a str> {
    process.env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

#[test]
fn parallel_stages_share_a_port_and_open_files_themselves() {
    let p = plan("< in.npy -n 2 a | -n 1 b > /out.npy");
    assert_eq!(p.processes.len(), 3);
    let [a0, a1, b] = &p.processes[..] else { unreachable!() };
    assert_eq!(var(a0, "POLYDUCT_IN"), Some("/d/in.npy"));
    assert_eq!(var(a1, "POLYDUCT_OUT"), Some("pipe:stage-0-to-1.run-x"));
    assert_eq!(var(b, "POLYDUCT_IN"), Some("pipe:stage-0-to-1.run-x"));
    assert_eq!(var(b, "POLYDUCT_OUT"), Some("/out.npy"));
    assert_eq!((var(a1, "POLYDUCT_UNIT"), var(a1, "POLYDUCT_UNITS")), (Some("1"), Some("2")));
    assert_ne!(var(a0, "POLYDUCT_PROGRAM"), var(b, "POLYDUCT_PROGRAM"));
    assert_eq!(var(a0, "POLYDUCT_PROGRAM"), var(a1, "POLYDUCT_PROGRAM"));
    assert_eq!(var(a1, "POLYDUCT_DOMAIN"), Some("run-x-stage-0"));
    assert_eq!(var(b, "POLYDUCT_DOMAIN"), Some("run-x-stage-1"));
    assert!(p.processes.iter().all(|p| p.stdin == Source::Null && p.stdout == Sink::Log));
}

#[test]
fn a_stage_of_mpi_is_a_launcher_and_its_ranks() {
    let p = plan("A=1 -n 2 --mpi='mpirun -v' a x | -n 1 b");
    let [launcher, a0, a1, b] = &p.processes[..] else { unreachable!() };
    let command = "mpirun -v -n 2 /bin/polyduct rank --units 2 -- a x";
    assert_eq!((launcher.role, launcher.command.join(" ").as_str()), (Role::Launcher, command));
    assert_eq!((var(launcher, "A"), var(launcher, "POLYDUCT_UNIT")), (Some("1"), None));
    assert_eq!(var(launcher, "POLYDUCT_OUT"), Some("pipe:stage-0-to-1.run-x"));
    assert_eq!(var(launcher, "POLYDUCT_PROGRAM"), var(a1, "POLYDUCT_PROGRAM"));
    assert_eq!([launcher, a0, a1, b].map(|p| p.launched_by), [None, Some(0), Some(0), None]);
    assert_eq!((a1.role, a1.unit, a1.command.join(" ").as_str()), (Role::Unit, 1, "a x"));
    // What a port says of itself is a rank's, and nobody waits for the launcher.
    assert_eq!(p.by_name().get(&("run-x-s0", 0)), Some(&1));
    assert_eq!([0, 1, 2].map(|i| p.meeting(i, Mode::Write)), [None, Some(0), Some(0)]);
    assert_eq!(p.describe(0), "the launcher of stage 0 (a x)");
}

#[test]
fn what_chooses_in_a_file_is_no_part_of_its_path() {
    let p = plan("< m.safetensors#a/w -n 1 a > out.zarr/");
    assert_eq!(var(&p.processes[0], "POLYDUCT_IN"), Some("/d/m.safetensors#a/w"));
    assert_eq!(p.file.as_deref(), Some(Path::new("/d/out.zarr")));
    let first = &Pipeline::parse("-n 1 a").unwrap().stages[0];
    let site = Path::new("/d");
    assert_eq!(opened(Some(first), "m.safetensors#a/w", site), ("/d/m.safetensors".into(), false));
    assert_eq!(opened(Some(first), "x.zarr", site), ("/d/x.zarr".into(), true));
    // A plain program reads and writes files as they are called.
    let plain = &Pipeline::parse("a").unwrap().stages[0];
    assert_eq!(opened(Some(plain), "m.safetensors#w", site), ("/d/m.safetensors#w".into(), false));
}

#[test]
fn plain_stages_are_a_shell_pipeline() {
    let p = plan("< f a | b | c > g");
    assert_eq!(p.os_pipes, 2);
    assert_eq!(p.links, [Connector::OsPipe, Connector::OsPipe]);
    let ends: Vec<_> = p.processes.iter().map(|p| (p.stdin.clone(), p.stdout.clone())).collect();
    assert_eq!(
        ends,
        [
            (Source::File("/d/f".into()), Sink::Pipe(0)),
            (Source::Pipe(0), Sink::Pipe(1)),
            (Source::Pipe(1), Sink::File("/d/g".into())),
        ]
    );
}

#[test]
fn pumps_stand_where_the_kinds_meet() {
    let p = plan("S=1 gen | -n 2 mid | tail");
    let roles: Vec<_> = p.processes.iter().map(|p| (p.role, p.stage)).collect();
    use Role::*;
    assert_eq!(roles, [(Plain, 0), (PumpIn, 0), (Unit, 1), (Unit, 1), (PumpOut, 2), (Plain, 2)]);
    let [gen, pump_in, mid, _, pump_out, tail] = &p.processes[..] else { unreachable!() };
    assert_eq!((&gen.stdin, &gen.stdout), (&Source::Inherit, &Sink::Pipe(0)));
    assert_eq!(pump_in.stdin, Source::Pipe(0));
    assert_eq!(pump_in.command, ["/bin/polyduct", "pump-in", "pipe:stage-0-to-1.run-x"]);
    assert_eq!(var(pump_in, "POLYDUCT_OUT"), Some("pipe:stage-0-to-1.run-x"));
    assert_eq!(var(pump_in, "S"), Some("1"), "a plain stage's settings reach its pump");
    assert_eq!(var(mid, "POLYDUCT_IN"), Some("pipe:stage-0-to-1.run-x"));
    assert_eq!(pump_out.command, ["/bin/polyduct", "pump-out", "pipe:stage-1-to-2.run-x"]);
    assert_eq!((&pump_out.stdout, &tail.stdin), (&Sink::Pipe(1), &Source::Pipe(1)));
    assert_eq!(tail.stdout, Sink::Result);
}

#[test]
fn commands_and_files_are_checked_first() {
    let check = |text: &str| {
        let pipeline = Pipeline::parse(text).unwrap();
        plan(text).check(&pipeline, Path::new("/"))
    };
    assert!(check("sh -c x | -n 3 cat").is_ok());
    assert!(matches!(check("sh | no-such-command"), Err(PlanError::NotFound { stage: 1, .. })));
    assert!(check("-n 2 --mpi=sh cat").is_ok());
    for text in ["-n 2 --mpi=no-such-launcher cat", "-n 2 --mpi=sh no-such-command"] {
        assert!(matches!(check(text), Err(PlanError::NotFound { stage: 0, .. })), "{text}");
    }
    assert!(matches!(check("PATH=/nowhere sh"), Err(PlanError::NotFound { .. })));
    assert!(matches!(check("/etc/passwd"), Err(PlanError::NotExecutable { .. })));
    assert!(matches!(check("/etc"), Err(PlanError::NotExecutable { .. })));
    assert!(matches!(check("< /nowhere/x cat"), Err(PlanError::Input { .. })));
    assert!(matches!(check("< /etc cat"), Err(PlanError::Input { .. })));
    assert!(matches!(check("cat > /nowhere/x"), Err(PlanError::Output { .. })));
    for text in ["cat | -n 2 cat > /tmp/x.txt", "< /etc/passwd -n 2 cat", "-n 2 cat > npy"] {
        assert!(matches!(check(text), Err(PlanError::FileKind { .. })), "{text}");
    }
    for text in ["-n 2 cat | cat > /tmp/x.txt", "< /etc/passwd cat | -n 2 cat > /tmp/x.raw"] {
        assert!(check(text).is_ok(), "{text}");
    }
    assert!(matches!(check("cat > /etc"), Err(PlanError::Output { .. })));
    assert!(matches!(check("< /etc/passwd cat > /etc/passwd"), Err(PlanError::SameFile { .. })));
}
