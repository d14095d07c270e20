//! Copies of several arrays with names: files array by array, some MiB at a time; pipes in whole steps.

use super::ends::{Source, Target};
use super::ports::{compare_ports, room};
use super::stretches::Stretches;
use super::{at_open, of_pattern, port, ports, CpArgs, CpError, Moved};
use crate::layout::{Dataset, Layout};
use polyduct::store::file::{Attributes, Notes};
use polyduct::store::zarr::Compression;
use polyduct::{open, Array, ArrayPart, Changes, Each, Open, Rule, Writer};

/// Names that are listed in a message.
const LISTED: usize = 5;

/// Several arrays that are copied.
pub struct Set<'a> {
    args: &'a CpArgs,
    /// What a pipe brings; files say it when they are opened.
    brought: Option<Vec<Array>>,
    arrays: usize,
    /// Whether the size of some changes from step to step: those are copied in whole steps.
    changes: bool,
}

impl<'a> Set<'a> {
    /// The arrays of the source, if it has several, with names.
    ///
    /// # Errors
    /// Where the source is not there; options that only one array can have.
    pub fn of(args: &'a CpArgs) -> Result<Option<Set<'a>>, CpError> {
        if super::stream::of(&args.src, polyduct::Mode::Read).is_some() {
            return Ok(None);
        }
        let failed = at_open(&args.src);
        let brought = match open(&args.src).has_names().map_err(&failed)? {
            Some(false) => return Ok(None),
            Some(true) => None,
            // Who says the shape reads one array, or bytes that the writer cannot describe.
            None if args.shape.is_some() => return Ok(None),
            None => {
                let arrays = port(args, &args.src, 0, "look").describe().map_err(&failed)?;
                if arrays.iter().all(|array| array.name.is_empty()) {
                    return Ok(None);
                }
                Some(arrays)
            }
        };
        let refused = [
            ("shape", args.shape.is_some()),
            ("attrs", args.attrs.is_some()),
            ("dims", args.dims.is_some()),
            ("chunks", args.chunks.is_some()),
            ("dtype without --convert", args.dtype.is_some() && !args.convert),
        ];
        if let Some((option, _)) = refused.into_iter().find(|refused| refused.1) {
            return Err(CpError::OneArray { src: args.src.clone(), option });
        }
        for text in &args.layout {
            let layout = of_pattern(text).map_or(&text[..], |(_, layout)| layout);
            let parsed = layout.parse::<Layout>();
            parsed.map_err(|error| CpError::LayoutOf { text: text.clone(), error })?;
        }
        let (arrays, changes) = match &brought {
            Some(brought) => (brought.iter().filter(|array| wanted(args, &array.name)).count(), false),
            None => {
                let each = each(args, &args.src, 0, "look")?;
                let changes = each.step_shapes().any(|shapes| shapes.is_some());
                (each.arrays().map_err(failed)?.len(), changes)
            }
        };
        match arrays {
            0 if args.layout.is_empty() => Err(CpError::NoArrays { src: args.src.clone() }),
            0 => Err(CpError::NoneFits { src: args.src.clone() }),
            arrays => Ok(Some(Set { args, brought, arrays, changes })),
        }
    }

    /// How many, for people.
    pub fn count(&self) -> String {
        match self.arrays {
            1 => ", an array".into(),
            n => format!(", {n} arrays"),
        }
    }

    /// Copies what a unit has to copy; gives the number of steps.
    pub fn copy_unit(&self, unit: u32, moved: &Moved) -> Result<u64, CpError> {
        match (&self.brought, is_pipe(&self.args.dst)) {
            (None, false) if !self.changes => self.between_files(unit, moved),
            (brought, _) => self.in_steps(brought.as_deref(), unit, moved),
        }
    }

    fn between_files(&self, unit: u32, moved: &Moved) -> Result<u64, CpError> {
        let args = self.args;
        let of_dst = at_open(&args.dst);
        let each = each(args, &args.src, unit, "in")?;
        let (steps, listed) = (each.steps(), each.arrays().map_err(at_open(&args.src))?);
        if unit == 0 {
            let bytes = |(_, dataset, stepped): &(&str, Dataset, bool)| {
                dataset.len_bytes().saturating_mul(if *stepped { steps } else { 1 })
            };
            moved.expect(listed.iter().map(bytes).fold(0, u64::saturating_add));
        }
        let arrays = arrays(args, &listed);
        let to = with_about(self.target(unit), &listed, &each);
        let mut to = to.write_arrays(&arrays).map_err(&of_dst)?;
        if unit == 0 {
            self.say_what_is_lost(&to, &listed, &each);
        }
        let copy = || -> Result<(), CpError> {
            for (step, said) in (0..steps).zip(each.values()).filter(|(_, said)| !said.is_empty()) {
                to.set_values_of(step, said).map_err(&of_dst)?;
            }
            for (n, port) in each.read(|name, dataset| layout(args, name, dataset)).enumerate() {
                let mut source = Source::of_array(args, port.map_err(at_open(&args.src))?);
                let mut target = Target::of_array(args, &mut to, n);
                match Stretches::between(args, unit, &source, &target) {
                    Some(stretches) => stretches.copy(&mut source, &mut target, moved)?,
                    None => ports::in_steps(args, &mut source, &mut target, moved)?,
                };
            }
            to.end_steps(steps).map_err(&of_dst)
        };
        if let Err(error) = copy() {
            to.abort_because(&error.to_string());
            return Err(error);
        }
        to.close().map_err(&of_dst)?;
        Ok(steps)
    }

    /// From a pipe, or into one, or where sizes change: each step as a whole.
    fn in_steps(&self, brought: Option<&[Array]>, unit: u32, moved: &Moved) -> Result<u64, CpError> {
        let args = self.args;
        let (of_src, of_dst) = (at_open(&args.src), at_open(&args.dst));
        let describe = || port(args, &args.src, unit, "look").describe().map_err(&of_src);
        let described = brought.map_or_else(describe, |arrays| Ok(arrays.to_vec()))?;
        let rules: Vec<Rule> = described
            .iter()
            .filter(|array| wanted(args, &array.name))
            .map(|array| Rule {
                pattern: array.name.clone(),
                layout: match array.open {
                    Some(Changes::Dim(dim)) => of_pieces(array.dataset.shape().len(), dim as usize),
                    _ => layout(args, &array.name, &array.dataset),
                },
                ..Rule::default()
            })
            .collect();
        let mut from =
            converted(args, port(args, &args.src, unit, "in")).read_arrays(&rules).map_err(&of_src)?;
        // How many units bring a piece of up to the most; files say the most of all of them.
        let writers = from.addresses().map_or(1, |addresses| u64::from(addresses.writers().end));
        let taken = |part: &ArrayPart| -> Result<Array, CpError> {
            let (mut dataset, mut layout) = (*part.mapping.dataset(), part.mapping.layout().to_string());
            let given = described.iter().find(|array| array.name == part.name);
            if let (Some(given), Some(changes)) = (given, part.open.filter(|open| *open != Changes::Never)) {
                let mut most = given.dataset.shape().to_vec();
                if let Changes::Dim(dim) = changes {
                    let all = most[dim as usize].saturating_mul(writers);
                    (most[dim as usize], layout) = (all.div_ceil(args.units.into()), String::new());
                }
                dataset = Dataset::new(&most, dataset.elem()).map_err(CpError::Layout)?;
            }
            // What of files has no steps beside others that have some is constant.
            let open = part.open.or(given.and_then(|given| given.open));
            Ok(Array { name: part.name.clone(), dataset, layout, open })
        };
        let arrays: Vec<Array> = from.arrays().iter().map(taken).collect::<Result<_, _>>()?;
        let target = self.target(unit);
        let mut to = match is_pipe(&args.src) {
            true => target.write_arrays(&arrays).map_err(&of_dst)?,
            false => {
                let each = each(args, &args.src, unit, "about")?;
                let listed = each.arrays().map_err(&of_src)?;
                let to = with_about(target, &listed, &each).write_arrays(&arrays).map_err(&of_dst)?;
                if unit == 0 {
                    self.say_what_is_lost(&to, &listed, &each);
                }
                to
            }
        };
        let mut memory = room(from.local_len_bytes() as u64, &args.src)?;
        let mut count = 0;
        let mut copy = || -> Result<(), CpError> {
            loop {
                if from.peek().map_err(&of_src)?.is_none() {
                    return Ok(());
                }
                for (n, part) in from.arrays().iter().enumerate() {
                    let shape = match part.open {
                        Some(Changes::Dim(_)) => {
                            part.mapping.local_shape(unit.into()).map_err(CpError::Layout)?.to_vec()
                        }
                        Some(Changes::Whole) => part.mapping.dataset().shape().to_vec(),
                        Some(Changes::Never) | None => continue,
                    };
                    to.bring(n, &shape).map_err(&of_dst)?;
                }
                let len = from.local_len_bytes();
                if memory.len() != len {
                    memory = room(len as u64, &args.src)?;
                }
                if from.read(&mut memory).map_err(&of_src)?.is_none() {
                    return Ok(());
                }
                to.set_values(from.values()).map_err(&of_dst)?;
                let parts: Vec<&[u8]> = from.arrays().iter().map(|part| &memory[part.at.clone()]).collect();
                let bytes: usize = parts.iter().map(|part| part.len()).sum();
                to.write_arrays(&parts).map_err(&of_dst)?;
                moved.add(bytes as u64);
                count += 1;
            }
        };
        if let Err(error) = copy() {
            to.abort_because(&error.to_string());
            return Err(error);
        }
        to.close().map_err(&of_dst)?;
        from.close().map_err(&of_src)?;
        Ok(count)
    }

    /// Says what the target has no place for.
    fn say_what_is_lost(&self, to: &Writer, listed: &[(&str, Dataset, bool)], each: &Each) {
        let keeps = to.keeps();
        let notes: Vec<(&str, Notes)> = listed.iter().map(|(name, ..)| *name).zip(each.notes()).collect();
        let arrays = |lost: &dyn Fn(&Notes) -> bool| -> Vec<&str> {
            notes.iter().filter(|(_, notes)| lost(notes)).map(|(name, _)| *name).collect()
        };
        let groups = each.groups().keys().map(String::as_str);
        let groups: Vec<&str> =
            groups.filter(|name| if name.is_empty() { !keeps.whole } else { !keeps.groups }).collect();
        let attributes = arrays(&|notes| !keeps.attributes && !notes.attributes.is_empty());
        self.say_lost("attributes", &[groups, attributes].concat(), "they are not copied");
        // A store has them among the attributes.
        let dims = arrays(&|notes| !keeps.dims && !keeps.attributes && notes.dims.is_some());
        self.say_lost("names of dimensions", &dims, "they are not copied");
        let types = arrays(&|notes| !keeps.descr && notes.descr.is_some());
        self.say_lost("NumPy's types", &types, "the bytes are copied");
    }

    fn say_lost(&self, what: &str, names: &[&str], then: &str) {
        let CpArgs { src, dst, .. } = self.args;
        let named = |name: &&str| if name.is_empty() { "the whole".to_owned() } else { format!("{name:?}") };
        let mut listed = names.iter().take(LISTED).map(named).collect::<Vec<_>>().join(", ");
        if names.len() > LISTED {
            listed += &format!(" and {} more", names.len() - LISTED);
        }
        if !names.is_empty() {
            crate::text::say!("polyduct: {dst} cannot store {what} that {src} has of {listed}: {then}");
        }
    }

    fn target(&self, unit: u32) -> Open {
        let port = port(self.args, &self.args.dst, unit, "out");
        match self.args.compress {
            Compression::None => port,
            compression => port.compress(compression),
        }
    }

    /// Reads both sides again and compares them; gives the number of steps.
    pub fn compare_unit(&self, unit: u32, moved: &Moved) -> Result<u64, CpError> {
        let args = self.args;
        let left = each(args, &args.src, unit, "verify-in")?;
        let right = each(args, &args.dst, unit, "verify-out")?;
        let differ = |what: String| CpError::SetsDiffer { what };
        let (steps, of_src, of_dst) = (left.steps(), at_open(&args.src), at_open(&args.dst));
        let (ours, theirs) = (left.arrays().map_err(&of_src)?, right.arrays().map_err(&of_dst)?);
        if let Some(n) = (0..ours.len().max(theirs.len())).find(|&n| ours.get(n) != theirs.get(n)) {
            let name = |all: &[(&str, Dataset, bool)]| {
                all.get(n).map_or("nothing more".to_owned(), |(name, d, _)| {
                    format!("{name:?}, {:?} of {}", d.shape(), d.elem())
                })
            };
            let (ours, theirs) = (name(&ours), name(&theirs));
            return Err(differ(format!("{} has {ours}, and {} has {theirs}", args.src, args.dst)));
        }
        if let Some(((name, ..), _)) = ours
            .iter()
            .zip(left.step_shapes().zip(right.step_shapes()))
            .find(|(_, (ours, theirs))| ours != theirs)
        {
            return Err(differ(format!("the steps of {name:?} have other sizes in {}", args.dst)));
        }
        let most = left.values().len().max(right.values().len()).max(1) as u64;
        if let Some(step) = (0..most).find(|&step| !left.says_the_same(step, &right)) {
            return Err(differ(format!("the values of step {step} are others in {}", args.dst)));
        }
        if left.keeps().groups && right.keeps().groups {
            // What had no name has one now.
            let named = |notes: &Notes| notes.dims.clone().filter(|dims| dims.iter().all(Option::is_some));
            let differs = |(_, (ours, theirs)): &(_, (Notes, Notes))| {
                ours.attributes != theirs.attributes || named(ours).is_some() && ours.dims != theirs.dims
            };
            if let Some(((name, ..), _)) = ours.iter().zip(left.notes().zip(right.notes())).find(differs) {
                return Err(differ(format!("the attributes of {name:?} are others in {}", args.dst)));
            }
            // Of one step the whole's are among what is said of that.
            let others = |(name, _): &(&String, &Attributes)| !name.is_empty() || steps > 1;
            if !left.groups().iter().filter(others).eq(right.groups().iter().filter(others)) {
                return Err(differ(format!("the attributes of groups are others in {}", args.dst)));
            }
        }
        let shape = |name: &str, dataset: &Dataset| layout(args, name, dataset);
        for (left, right) in left.read(shape).zip(right.read(shape)) {
            compare_ports(args, unit, left.map_err(&of_src)?, right.map_err(&of_dst)?, moved)?;
        }
        Ok(steps)
    }
}

fn is_pipe(url: &str) -> bool {
    url.starts_with("pipe:") || url == "-"
}

/// Whether an array is copied: all are where no pattern is given.
fn wanted(args: &CpArgs, name: &str) -> bool {
    args.plain_layout().is_some() || args.layout.is_empty() || by_pattern(args, name).is_some()
}

fn by_pattern<'a>(args: &'a CpArgs, name: &str) -> Option<&'a str> {
    let fits = |pattern: &str| Rule { pattern: pattern.to_owned(), ..Rule::default() }.fits(name);
    args.layout
        .iter()
        .filter_map(|layout| of_pattern(layout))
        .find(|(p, _)| fits(p))
        .map(|(_, layout)| layout)
}

/// How the units divide an array between them.
fn layout(args: &CpArgs, name: &str, dataset: &Dataset) -> String {
    match by_pattern(args, name).unwrap_or(args.layout()) {
        // One element cannot be divided.
        "block,..." if dataset.shape().is_empty() => "...".into(),
        layout => layout.to_owned(),
    }
}

/// With what is written down of each array of files, and whether they have steps.
fn with_about(to: Open, listed: &[(&str, Dataset, bool)], each: &Each) -> Open {
    let to = to.stepped(listed.iter().any(|(.., stepped)| *stepped));
    let to = listed.iter().zip(each.notes()).fold(to, |to, ((name, ..), notes)| to.note_array(name, notes));
    each.groups().iter().fold(to, |to, (name, attributes)| {
        to.note_array(name, Notes { attributes: attributes.clone(), ..Notes::default() })
    })
}

/// The layout of an array whose units have pieces in this dimension.
fn of_pieces(dims: usize, dim: usize) -> String {
    let of = |at| if at == dim { "balanced" } else { "*" };
    (0..dims).map(of).collect::<Vec<_>>().join(",")
}

fn converted(args: &CpArgs, port: Open) -> Open {
    match &args.dtype {
        Some(dtype) => port.elem(dtype.elem).convert(args.convert),
        None => port,
    }
}

/// The arrays of files, those that are wanted.
fn each(args: &CpArgs, url: &str, unit: u32, purpose: &str) -> Result<Each, CpError> {
    let mut each = converted(args, port(args, url, unit, purpose)).each().map_err(at_open(url))?;
    each.retain(|name| wanted(args, name));
    Ok(each)
}

/// What is written.
fn arrays(args: &CpArgs, listed: &[(&str, Dataset, bool)]) -> Vec<Array> {
    let has_steps = listed.iter().any(|(.., stepped)| *stepped);
    let array = |&(name, dataset, stepped): &(&str, Dataset, bool)| Array {
        name: name.to_owned(),
        dataset,
        layout: layout(args, name, &dataset),
        open: (has_steps && !stepped).then_some(Changes::Never),
    };
    listed.iter().map(array).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use polyduct::layout::ElemType;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: CpArgs,
    }

    #[test]
    fn verification_finds_what_differs() {
        let dir = std::env::temp_dir().join(format!("polyduct-cp-verify-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, arrays: &[(&str, u8)], time: i64| {
            let path = dir.join(name).display().to_string();
            let array = |(name, _): &(&str, u8)| Array {
                name: (*name).into(),
                dataset: Dataset::new(&[4], ElemType::U8).unwrap(),
                layout: "...".into(),
                open: None,
            };
            let all: Vec<Array> = arrays.iter().map(array).collect();
            let mut out = open(&path).unit(0).units(1).write_arrays(&all).unwrap();
            out.set_values(&polyduct::values::pack(vec![("time".into(), time.into())]).unwrap()).unwrap();
            let parts: Vec<[u8; 4]> = arrays.iter().map(|(_, fill)| [1, 2, 3, *fill]).collect();
            out.write_arrays(&parts.iter().map(|part| &part[..]).collect::<Vec<_>>()).unwrap();
            out.close().unwrap();
            path
        };
        let left = write("left.npz", &[("a", 7), ("b", 8)], 1);
        for (n, (arrays, time, why)) in [
            (&[("a", 7), ("b", 8)][..], 1, None),
            (&[("a", 7), ("b", 9)], 1, Some("byte 3 of the row-major array")),
            (&[("a", 7)], 1, Some("and ")),
            (&[("a", 7), ("c", 8)], 1, Some("has \"c\"")),
            (&[("a", 7), ("b", 8)], 2, Some("the values of step 0")),
        ]
        .into_iter()
        .enumerate()
        {
            let right = write(&format!("{n}.zarr"), arrays, time);
            let Cli { args } = Cli::parse_from(["cp", &left, &right]);
            let set = Set::of(&args).unwrap().unwrap();
            let found = set.compare_unit(0, &Moved::default()).map_err(|e| e.to_string());
            match why {
                None => assert_eq!(found, Ok(1)),
                Some(why) => assert!(found.as_ref().unwrap_err().contains(why), "{found:?}"),
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
