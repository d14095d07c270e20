//! Which arrays of a bundle a reader takes: rules with names or patterns, of which the first that fits counts.

use crate::{check_names, Assembly, BundleError, Expect};
use std::collections::{HashMap, HashSet};

/// The most rules of a reader that are patterns; there may be one rule for each array besides.
pub const MAX_PATTERNS: usize = 1024;
/// Names that are offered for one that there is not.
const NEAREST: usize = 3;
/// How alike those are at least, from 0 to 1.
const ALIKE: f64 = 0.75;
/// Missing names for which the nearest are looked for: each costs a look at all that there are.
const LOOKED_FOR: usize = 20;

/// What a reader program says of the arrays that it takes.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// A name, or a pattern: `*` stands for any characters, `/` included, and `?` for one. Of an array that is
    /// put together its name.
    pub pattern: String,
    /// The program's layout of them, as text.
    pub layout: String,
    /// What it expects of them.
    pub expect: Expect,
    /// What an array is put together from.
    pub of: Option<Assembly>,
}

impl Rule {
    /// Whether its pattern fits a name.
    pub fn fits(&self, name: &str) -> bool {
        self.pattern == name || matches(&self.pattern, name)
    }
}

/// Whether a text is a pattern, and not a name.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Whether a name fits a pattern.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star stands, and up to where it reaches: it takes one more when the rest does not fit.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == '?' || c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match &mut star {
                Some((at, reach)) => {
                    *reach += 1;
                    (p, n) = (*at + 1, *reach);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

/// The arrays that a reader with these rules takes, in the writer's order, each with the rule that counts: the
/// first that fits. Patterns leave out those that are `used` otherwise.
///
/// # Errors
/// [`BundleError::Missing`] with every rule that fits none.
fn select(names: &[&str], rules: &[&str], used: &HashSet<usize>) -> Result<Vec<(usize, usize)>, BundleError> {
    let mut exact = HashMap::with_capacity(rules.len());
    let mut patterns = Vec::new();
    for (rule, &text) in rules.iter().enumerate() {
        match is_pattern(text) {
            true => patterns.push(rule),
            false => drop(exact.entry(text).or_insert(rule)),
        }
    }
    let mut fits = vec![false; rules.len()];
    let mut taken = Vec::new();
    for (array, name) in names.iter().enumerate() {
        let named = exact.get(name).copied();
        let mut first = named;
        for &rule in &patterns {
            // One that has fitted before need not be asked where an earlier one counts.
            let counts = first.is_none_or(|first| rule < first);
            if (counts || !fits[rule]) && matches(rules[rule], name) {
                fits[rule] = true;
                if !used.contains(&array) {
                    first = Some(first.map_or(rule, |first| first.min(rule)));
                }
            }
        }
        named.into_iter().for_each(|rule| fits[rule] = true);
        taken.extend(first.map(|rule| (array, rule)));
    }
    let mut missing: Vec<&str> =
        (0..rules.len()).filter(|&rule| !fits[rule]).map(|rule| rules[rule]).collect();
    // A rule that stands twice is missed once, or not at all.
    missing.dedup();
    missing.retain(|text| exact.get(text).is_none_or(|&rule| !fits[rule]));
    if missing.is_empty() {
        return Ok(taken);
    }
    Err(lacking(&missing, names))
}

/// An array that a reader takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// What the reader calls it.
    pub name: &'a str,
    /// The rule that counts.
    pub rule: usize,
    /// Of which arrays it is: at least one, more where it is put together.
    pub sources: Vec<usize>,
}

/// The arrays that a reader takes of those with these names, by rules that are a name or pattern, or the name of
/// an array that is put together and of what: the writer's in their order, then those that are put together.
/// Patterns leave out what these are made of.
///
/// # Errors
/// [`BundleError::Missing`] with every name and pattern that fits none; [`BundleError::Twice`]; what is wrong with
/// a name, or the number of pieces.
pub fn choose<'a>(
    names: &[&'a str],
    rules: &[(&'a str, Option<&'a Assembly>)],
) -> Result<Vec<Chosen<'a>>, BundleError> {
    let (made, plain): (Vec<usize>, Vec<usize>) = (0..rules.len()).partition(|&rule| rules[rule].1.is_some());
    let pieces = |rule: usize| rules[rule].1.into_iter().flat_map(|of| &of.pieces);
    let wanted: Vec<&str> =
        made.iter().flat_map(|&rule| pieces(rule)).map(|piece| piece.array.as_str()).collect();
    let (found, missing) = match look_up(names, &wanted) {
        Ok(found) => (found, Vec::new()),
        Err(BundleError::Missing { names, .. }) => (Vec::new(), names),
        Err(other) => return Err(other),
    };
    let patterns: Vec<&str> = plain.iter().map(|&rule| rules[rule].0).collect();
    // What is missing of either kind is told at once.
    let selected = match select(names, &patterns, &found.iter().copied().collect()) {
        Ok(selected) if missing.is_empty() => selected,
        Ok(_) => return Err(BundleError::Missing { names: missing, of: names.len() }),
        Err(BundleError::Missing { names, of }) => {
            return Err(BundleError::Missing { names: [names, missing].concat(), of })
        }
        Err(other) => return Err(other),
    };
    let mut chosen: Vec<Chosen<'a>> = selected
        .into_iter()
        .map(|(array, rule)| Chosen { name: names[array], rule: plain[rule], sources: vec![array] })
        .collect();
    let mut found = found.into_iter();
    for rule in made {
        let (name, of) = rules[rule];
        of.map_or(Ok(()), |of| of.check(name))?;
        chosen.push(Chosen { name, rule, sources: found.by_ref().take(pieces(rule).count()).collect() });
    }
    // The only array of a pipe may have no name, and a reader may take nothing.
    match check_names(chosen.iter().map(|chosen| chosen.name)) {
        Err(error @ (BundleError::Twice { .. } | BundleError::TooMany { .. })) => Err(error),
        Err(BundleError::Name { .. } | BundleError::Empty) | Ok(()) => Ok(chosen),
        Err(error) => Err(error),
    }
}

/// Which of these each wanted name is.
///
/// # Errors
/// [`BundleError::Missing`] with every one that is none.
fn look_up(names: &[&str], wanted: &[&str]) -> Result<Vec<usize>, BundleError> {
    let known: HashMap<&str, usize> = names.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    let found: Vec<usize> = wanted.iter().filter_map(|name| known.get(name).copied()).collect();
    if found.len() == wanted.len() {
        return Ok(found);
    }
    let mut missing: Vec<&str> = wanted.iter().copied().filter(|name| !known.contains_key(name)).collect();
    missing.dedup();
    Err(lacking(&missing, names))
}

/// These are not among the names.
fn lacking(missing: &[&str], names: &[&str]) -> BundleError {
    let near = |(at, text): (usize, &&str)| {
        let near = if at < LOOKED_FOR { nearest(text, names) } else { Vec::new() };
        ((*text).to_owned(), near)
    };
    BundleError::Missing { names: missing.iter().enumerate().map(near).collect(), of: names.len() }
}

/// The names most like one that there is not, the likest first: also those that differ in upper and lower case, or in
/// the levels before the last.
fn nearest(text: &str, names: &[&str]) -> Vec<String> {
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_lowercase();
    let (lower, own) = (text.to_lowercase(), last(text));
    let alike = |name: &str| match last(name) == own && !is_pattern(text) {
        true => ALIKE.max(strsim::jaro_winkler(&lower, &name.to_lowercase())),
        false => strsim::jaro_winkler(&lower, &name.to_lowercase()),
    };
    let mut near: Vec<(f64, &str)> =
        names.iter().map(|&name| (alike(name), name)).filter(|near| near.0 >= ALIKE).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.truncate(NEAREST);
    near.into_iter().map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(names: &[&str], rules: &[&str]) -> Result<Vec<(usize, usize)>, BundleError> {
        super::select(names, rules, &HashSet::new())
    }

    #[test]
    fn patterns_fit_what_shells_take_them_for_but_a_star_crosses_levels() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("*", "a/b", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("encoder/*", "encoder/0/weight", true),
            ("encoder/*", "encoders", false),
            ("*.weight", "a.weight.weight", true),
            ("*.weight", "a.weights", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("größe?", "größe1", true),
            ("a", "a", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let names = ["a/w", "a/b", "c"];
        assert_eq!(select(&names, &["a/b", "a/*"]), Ok(vec![(0, 1), (1, 0)]));
        assert_eq!(select(&names, &["a/*", "a/b"]), Ok(vec![(0, 0), (1, 0)]));
        assert_eq!(select(&names, &["c", "*"]), Ok(vec![(0, 1), (1, 1), (2, 0)]));
        // A pattern all of whose arrays an earlier rule takes is no mistake.
        assert_eq!(select(&["c"], &["c", "*"]), Ok(vec![(0, 0)]));
        assert_eq!(select(&["c"], &["c", "c"]), Ok(vec![(0, 0)]));
        assert_eq!(select(&[""], &["*"]), Ok(vec![(0, 0)]));
    }

    #[test]
    fn patterns_leave_out_what_is_used_otherwise() {
        let names = ["q", "k", "o"];
        let used = HashSet::from([0, 1]);
        assert_eq!(super::select(&names, &["*"], &used), Ok(vec![(2, 0)]));
        assert_eq!(super::select(&names, &["*", "k"], &used), Ok(vec![(1, 1), (2, 0)]));
        assert_eq!(super::select(&names[..2], &["?"], &used), Ok(vec![]));
        assert_eq!(look_up(&names, &["o", "q", "o"]), Ok(vec![2, 0, 2]));
        let missing = vec![("v".to_owned(), vec![]), ("w".to_owned(), vec![])];
        let found = look_up(&names, &["v", "o", "w"]);
        assert_eq!(found, Err(BundleError::Missing { names: missing, of: 3 }));
    }

    #[test]
    fn rules_that_fit_nothing_are_all_listed() {
        let names = ["layer/weight", "layer/bias"];
        let found = select(&names, &["layer/wieght", "layer/bias", "head/*"]);
        let near = vec!["layer/weight".to_owned(), "layer/bias".to_owned()];
        let names = vec![("layer/wieght".to_owned(), near), ("head/*".to_owned(), vec![])];
        assert_eq!(found, Err(BundleError::Missing { names, of: 2 }));
        for (text, near) in [("U", "u"), ("z/y", "y"), ("y", "model/y")] {
            assert_eq!(nearest(text, &["t", near]), [near], "{text}");
        }
    }

    #[test]
    fn eighteen_thousand_names_take_no_square_of_that() {
        let names: Vec<String> = (0..18_000).map(|n| format!("experts/{n}/weight")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let start = std::time::Instant::now();
        let taken = select(&names, &names).unwrap();
        assert!(taken.len() == 18_000 && taken.iter().all(|(array, rule)| array == rule));
        // Comparing all with all would be 324 million comparisons, 10 s without optimisation.
        assert!(start.elapsed().as_secs() < 3, "{:?}", start.elapsed());
    }
}
