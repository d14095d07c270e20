use super::*;
use proptest::prelude::*;

fn stage(units: Option<u32>, env: &[(&str, &str)], command: &[&str]) -> Stage {
    Stage {
        units,
        launcher: None,
        env: env.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
        command: command.iter().map(|w| w.to_string()).collect(),
    }
}

#[test]
fn the_example() {
    let p = Pipeline::parse("< in.npy -n 4 python a.py | -n 3 python b.py > out.npy").unwrap();
    assert_eq!(p.input.as_deref(), Some("in.npy"));
    assert_eq!(p.output.as_deref(), Some("out.npy"));
    assert_eq!(
        p.stages,
        [stage(Some(4), &[], &["python", "a.py"]), stage(Some(3), &[], &["python", "b.py"])]
    );
    assert_eq!(p.to_string(), "< in.npy -n 4 python a.py | -n 3 python b.py > out.npy");
}

#[test]
fn options_and_assignments_come_before_the_command_only() {
    let p = Pipeline::parse("A=1 -n2 B='x y' prog -n 3 C=4 <f").unwrap();
    assert_eq!(p.stages, [stage(Some(2), &[("A", "1"), ("B", "x y")], &["prog", "-n", "3", "C=4"])]);
    assert_eq!(p.input.as_deref(), Some("f"));
    assert_eq!(Pipeline::parse("'-n' 3").unwrap().stages, [stage(None, &[], &["-n", "3"])]);
    assert_eq!(Pipeline::parse("-np 3 x").unwrap().stages, [stage(Some(3), &[], &["x"])]);
    assert_eq!(Pipeline::parse("-name x").unwrap().stages, [stage(None, &[], &["-name", "x"])]);
}

#[test]
fn a_stage_of_mpi_has_a_launcher() {
    let launcher = |text: &str| Pipeline::parse(text).unwrap().stages.remove(0).launcher;
    let words = |words: &[&str]| Some(words.iter().map(|w| w.to_string()).collect::<Vec<_>>());
    assert_eq!(launcher("-n 4 --mpi ./solver -x"), words(&["mpirun"]));
    assert_eq!(launcher("--mpi=mpirun.openmpi -n 4 a"), words(&["mpirun.openmpi"]));
    assert_eq!(
        launcher("-n4 --mpi='/a b/mpirun\\ x --bind-to none' a"),
        words(&["/a", "b/mpirun x", "--bind-to", "none"])
    );
    assert_eq!(launcher("-n 4 a --mpi"), None, "it is the command's");
    assert_eq!(launcher("-n 4 '--mpi' a"), None, "it is the command");
    for text in ["-n 4 --mpi a", "-n 4 --mpi=x a", "-n 4 --mpi='x \"y z\"' a", "-n 4 '--mpi' a"] {
        let read = Pipeline::parse(text).unwrap();
        assert_eq!(Pipeline::parse(&read.to_string()), Ok(read), "{text}");
    }
    assert_eq!(Pipeline::parse("-n 4 --mpi ./a").unwrap().to_string(), "-n 4 --mpi ./a");
}

#[test]
fn the_limit_is_that_of_the_ports_and_the_help_names_it() {
    let most = Pipeline::parse("-n 4096 a").unwrap();
    assert_eq!(most.stages[0].units, Some(MAX_UNITS));
    assert!(super::super::AFTER_HELP.contains(&format!("{MAX_UNITS} at most")));
}

#[test]
fn every_error_has_its_place() {
    use PipelineError::*;
    for (text, error) in [
        ("", NoCommand { at: 0 }),
        ("a | ", NoCommand { at: 4 }),
        ("| a", NoCommand { at: 0 }),
        ("a | -n 3 | b", NoCommand { at: 9 }),
        ("A=1", NoCommand { at: 3 }),
        ("'' x", EmptyCommand { at: 0 }),
        ("a | -n", MissingCount { at: 4 }),
        ("-n | a", MissingCount { at: 0 }),
        ("-n 0 a", BadCount { at: 3, found: "0".into() }),
        ("-n +4 a", BadCount { at: 3, found: "+4".into() }),
        ("-n4x a", BadCount { at: 0, found: "4x".into() }),
        ("-n 4097 a", BadCount { at: 3, found: "4097".into() }),
        ("-n 99999999999 a", BadCount { at: 3, found: "99999999999".into() }),
        ("-n 3 -n 4 a", DuplicateCount { at: 5 }),
        ("--mpi a", LauncherWithoutCount { at: 0 }),
        ("-n 3 --mpi= a", BadLauncher { at: 5, found: String::new() }),
        ("-n 3 --mpi='a | b' c", BadLauncher { at: 5, found: "a | b".into() }),
        ("-n 3 --mpi --mpi=x a", DuplicateLauncher { at: 11 }),
        ("a <", MissingFile { at: 2, operator: '<' }),
        ("a > | b", MissingFile { at: 2, operator: '>' }),
        ("a > ''", MissingFile { at: 2, operator: '>' }),
        ("< a < b c", DuplicateFile { at: 4, operator: '<' }),
        ("a | < f b", InputNotFirst { at: 4 }),
        ("a > f | b", OutputNotLast { at: 2 }),
    ] {
        assert_eq!(Pipeline::parse(text), Err(error), "{text}");
    }
    assert_eq!(Pipeline::parse(&["a"; MAX_STAGES + 1].join("|")), Err(TooManyStages { at: 2 * MAX_STAGES }));
}

fn any_word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z./-]{1,8}",
        "[ -~]{1,8}",
        "[^\0]{1,6}",
        Just("-n".into()),
        Just("-n4".into()),
        Just("--mpi".into()),
        Just("--mpi=x".into()),
        Just("2".into()),
        Just("A=b".into())
    ]
}

fn any_stage() -> impl Strategy<Value = Stage> {
    let value = prop_oneof![any_word(), Just(String::new())];
    let env = prop::collection::vec(("[A-Za-z_][A-Za-z0-9_]{0,4}", value.clone()), 0..3);
    let rest = prop::collection::vec(value, 0..4);
    let launcher = prop::option::of(prop::collection::vec(any_word(), 1..3));
    let parallel = (1..=MAX_UNITS, launcher).prop_map(|(units, launcher)| (Some(units), launcher));
    let count = prop_oneof![Just((None, None)), parallel];
    (count, env, any_word(), rest).prop_map(|((units, launcher), env, first, rest)| Stage {
        units,
        launcher,
        env,
        command: std::iter::once(first).chain(rest).collect(),
    })
}

proptest! {
    #[test]
    fn parse_undoes_print(
        input in prop::option::of(any_word()),
        stages in prop::collection::vec(any_stage(), 1..4),
        output in prop::option::of(any_word()),
    ) {
        let pipeline = Pipeline { input, stages, output };
        prop_assert_eq!(Pipeline::parse(&pipeline.to_string()), Ok(pipeline));
    }

    #[test]
    fn any_text_is_read_or_refused_with_its_place(text in any_text()) {
        check(&text)?;
    }

    #[test]
    fn a_spoilt_pipeline_is_read_or_refused_with_its_place(
        stages in prop::collection::vec(any_stage(), 1..3),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..3, any_text()), 1..4),
    ) {
        let text = Pipeline { input: None, stages, output: None }.to_string();
        let mut text: Vec<char> = text.chars().collect();
        for (at, gone, come) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + gone).min(text.len());
            text.splice(at..end, come.chars().take(3));
        }
        check(&text.into_iter().collect::<String>())?;
    }
}

/// Text of what matters to the language, and of anything else.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[-n0-9|<>'\"\\\\ a=&;()`$\t\n\0é]{1,4}",
        1 => "\\PC{1,3}",
        1 => Just("-n ".to_owned()),
        1 => Just(" --mpi=".to_owned()),
        1 => Just(" > a".to_owned()),
        1 => Just(" | ".to_owned()),
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

/// What is read can be printed and read again; what is refused is refused for what stands at its place.
fn check(text: &str) -> Result<(), TestCaseError> {
    let error = match Pipeline::parse(text) {
        Ok(pipeline) => {
            prop_assert!(!pipeline.stages.is_empty());
            prop_assert_eq!(Pipeline::parse(&pipeline.to_string()), Ok(pipeline));
            return Ok(());
        }
        Err(error) => error,
    };
    prop_assert!(text.is_char_boundary(error.at()) && error.at() <= text.len());
    let here = &text[error.at()..];
    // The end of a line may be hidden anywhere in a word.
    let joined = here.replace("\\\n", "");
    use PipelineError::*;
    let fits = match &error {
        UnclosedQuote { quote, .. } => here.starts_with(*quote),
        TrailingBackslash { .. } => here == "\\",
        Nul { .. } => here.starts_with('\0'),
        Operator { operator, .. } => joined.starts_with(operator.as_str()),
        NoCommand { .. } => here.is_empty() || here.starts_with('|'),
        EmptyCommand { .. } => here.starts_with(['\'', '"']),
        MissingCount { .. } | DuplicateCount { .. } => joined.starts_with("-n"),
        LauncherWithoutCount { .. } | BadLauncher { .. } | DuplicateLauncher { .. } => {
            joined.starts_with("--mpi")
        }
        // Behind an option, or in one word with it.
        BadCount { found, .. } => {
            let quoted = here.contains(['\'', '"', '\\']);
            quoted || [found.clone(), format!("-n{found}")].iter().any(|word| here.starts_with(word))
        }
        MissingFile { operator, .. } | DuplicateFile { operator, .. } => here.starts_with(*operator),
        InputNotFirst { .. } => here.starts_with('<'),
        OutputNotLast { .. } => here.starts_with('>'),
        TooManyStages { .. } => false,
    };
    prop_assert!(fits, "{:?}: {:?} at {:?}", text, error, here);
    Ok(())
}
