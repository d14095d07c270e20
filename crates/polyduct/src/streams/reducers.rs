//! Large arrays on a display: each unit reduces its own part, where it lies, to the pixels that viewers have room for.
//!
//! Beside the program's pipe there are two more between its units and the gateway: one on which the gateway asks, and one on
//! which the units answer, each with the values of its tiles, one behind the other. An ask says whether it is for the
//! next step or once more for the one before, so that who zooms into a program that is slow sees more at once.

use super::colour::{self, Colour};
use super::meet::Pipe;
use super::pictures::{coarse, Held, Pool, Shot};
use polyduct_display::{Project, Reduce, View, Want, WantId, Wants};
use polyduct_layout::{Dataset, ElemType, Layout};
use polyduct_pipe::{Given, PipeError, Reader, Writer};
use polyduct_port::values::{pack, unpack, Value};
use polyduct_port::{Array, Changes, Expect, Options, Policy, Rule};
use polyduct_stream::StreamError;
use serde::{Deserialize, Serialize};

/// Bytes of an ask.
const ASK: usize = 32 << 10;
/// Values of all units' tiles of a step, at most.
const VALUES: u64 = 8 << 20;
/// Bytes of those.
pub const MOST: u64 = 4 * VALUES;
/// What the tiles are called on their pipe.
const TILES: &str = "tiles";

/// An array as all who have to do with its pictures know it: who has what of it, and where that lies.
pub struct Known {
    /// Its name.
    pub name: String,
    /// Shape and element type.
    pub dataset: Dataset,
    /// Its layout, in which units read what they have written.
    layout: String,
    /// The boxes of each unit.
    held: Vec<Vec<Held>>,
    /// What its last dimension is, where it is a picture.
    colour: Option<Colour>,
}

impl Known {
    /// `None` for a layout in so many boxes that units would send more than they have, and for arrays whose size changes.
    pub fn of(array: &Array, units: u32, colour: Option<Colour>) -> Option<Known> {
        let mapping = array.layout.parse::<Layout>().ok()?.bind(&array.dataset, units.into()).ok()?;
        let held = (0..units.into()).map(|unit| Held::of(&mapping, unit)).collect::<Option<Vec<_>>>()?;
        let (name, layout) = (array.name.clone(), array.layout.clone());
        let known = Known { name, dataset: array.dataset, layout, held, colour };
        array.open.is_none().then_some(known)
    }
}

/// One thing that is wanted, as it crosses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wanted {
    array: usize,
    axes: Vec<usize>,
    lo: Vec<u64>,
    hi: Vec<u64>,
    pixels: Vec<u32>,
    slice: Option<u64>,
    most: bool,
    reduce: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Ask {
    /// For the next step, and not for the one before.
    next: bool,
    wanted: Vec<Wanted>,
}

impl Wanted {
    fn of(array: usize, want: &Want) -> Wanted {
        let Want { axes, lo, hi, pixels, slice, project, reduce, .. } = want.clone();
        let (most, reduce) = (project.is_some(), reduce.name().to_owned());
        Wanted { array, axes, lo, hi, pixels, slice, most, reduce }
    }

    fn shot(&self, known: &[Known]) -> Option<Shot> {
        let array = known.get(self.array)?;
        let Wanted { axes, lo, hi, pixels, slice, most, reduce, .. } = self.clone();
        let (view, project) = (array.name.clone(), most.then_some(Project::Max));
        let reduce = Reduce::of_name(&reduce)?;
        Shot::new(&array.dataset, &Want { view, axes, lo, hi, pixels, slice, project, reduce })
    }
}

/// The pipes beside that of the program.
fn pipes(pipe: &Pipe) -> (Pipe, Pipe) {
    (pipe.beside("asks"), pipe.beside("tiles"))
}

/// How a unit reads its own part of every array: as it lies.
fn own_parts(known: &[Known]) -> Vec<Rule> {
    let rule =
        |known: &Known| Rule { pattern: known.name.clone(), layout: known.layout.clone(), ..Rule::default() };
    known.iter().map(rule).collect()
}

/// Options of one of the pipes.
fn beside(options: &Options, program: &str) -> Options {
    let policy = Policy::Block;
    Options { program: program.into(), policy, depth: 2, readers: 1.into(), ..options.clone() }
}

fn program(error: PipeError) -> StreamError {
    StreamError::Program(error.into())
}

/// A unit's thread: answers what the gateway asks, until that or the program ends. The gateway is told where it fails.
///
/// # Errors
/// [`StreamError::Program`].
pub fn answer(pipe: &Pipe, known: &[Known], options: &Options) -> Result<(), StreamError> {
    let single = known.iter().any(|known| known.name.is_empty());
    let own = Options { readers: 1.into(), ..beside(options, "reducers") };
    let opened = match single {
        true => Reader::open(pipe, &known[0].layout, &Expect::default(), &own),
        false => Reader::open_arrays(pipe, &own_parts(known), &own),
    };
    let (mut steps, (asks, tiles)) = (opened.map_err(program)?, pipes(pipe));
    let mut asks =
        Reader::open(&asks, "*", &Expect::default(), &beside(options, "units")).map_err(program)?;
    let array = Array {
        name: TILES.into(),
        dataset: Dataset::new(&[VALUES], ElemType::F32).map_err(|e| StreamError::Program(e.into()))?,
        layout: String::new(),
        open: Some(Changes::Dim(0)),
    };
    let given = Given::Bundle(vec![array]);
    let mut out = Writer::open(&tiles, &given, "", &beside(options, "units")).map_err(program)?;
    let mut bytes = vec![0; asks.local_len_bytes()];
    let mut ask = |asks: &mut Reader| -> Result<Option<Ask>, StreamError> {
        let Some(_) = asks.read(&mut bytes).map_err(program)? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&bytes).map_err(|e| StreamError::Program(e.into()))?))
    };
    let mut asked = ask(&mut asks)?;
    while let Some(mut now) = asked {
        let Some(step) = steps.next_step().map_err(program)? else { break };
        loop {
            let values = tiles_of(known, options.unit, &step, step.arrays(), &now);
            if options.unit == 0 {
                let said = vec![
                    ("step".to_owned(), Value::from(step.number())),
                    ("values".to_owned(), Value::Binary(step.values().to_vec())),
                ];
                out.set_values(&pack(said).unwrap_or_default()).map_err(program)?;
            }
            out.write_arrays(&[&values]).map_err(program)?;
            asked = ask(&mut asks)?;
            match &asked {
                Some(once_more) if !once_more.next => now = once_more.clone(),
                _ => break,
            }
        }
    }
    // Across hosts each of the two writers stays until its readers have left.
    drop(asks.close());
    out.close().map(drop).map_err(program)
}

/// The values of a unit's tiles, one behind the other.
fn tiles_of(
    known: &[Known],
    unit: u32,
    memory: &[u8],
    parts: &[polyduct_port::ArrayPart],
    ask: &Ask,
) -> Vec<u8> {
    let mut values = Vec::new();
    for wanted in &ask.wanted {
        let Some((array, shot)) = known.get(wanted.array).zip(wanted.shot(known)) else { continue };
        let part = parts.iter().find(|part| part.name == array.name);
        let bytes = part.and_then(|part| memory.get(part.at.clone())).unwrap_or_default();
        for held in array.held.get(unit as usize).into_iter().flatten() {
            let tile = shot.of_box(array.dataset.elem(), held, bytes);
            let missing = shot.values_of(held);
            match tile {
                Some(tile) => values.extend(tile.values().iter().flat_map(|value| value.to_le_bytes())),
                None => values.extend(std::iter::repeat_n(f32::NAN.to_le_bytes(), missing).flatten()),
            }
        }
    }
    values
}

/// The gateway's side.
pub struct Asking {
    asks: Writer,
    tiles: Reader,
    known: Vec<Known>,
    memory: Vec<u8>,
}

/// What the units answered.
pub struct Answer {
    /// Of which step.
    pub step: u64,
    /// The program's values of it, packed.
    pub values: Vec<u8>,
    /// Pictures: of each array for everybody, and for each window.
    pub views: Vec<View>,
}

impl Asking {
    /// Waits for the units.
    ///
    /// # Errors
    /// [`StreamError::Program`].
    pub fn open(pipe: &Pipe, known: Vec<Known>, options: &Options) -> Result<Asking, StreamError> {
        let (asks, tiles) = pipes(pipe);
        let dataset =
            Dataset::new(&[ASK as u64], ElemType::U8).map_err(|e| StreamError::Program(e.into()))?;
        let options = beside(options, "gateway");
        let asks = Writer::open(&asks, &Given::Dataset(dataset), "*", &options).map_err(program)?;
        let rule = Rule { pattern: TILES.into(), layout: "*".into(), ..Rule::default() };
        let tiles = Reader::open_arrays(&tiles, &[rule], &options).map_err(program)?;
        Ok(Asking { asks, tiles, known, memory: Vec::new() })
    }

    /// Asks for the next step, or once more for the one before, and waits for the answers. `None` at the program's end.
    ///
    /// # Errors
    /// [`StreamError::Program`].
    pub fn ask(&mut self, next: bool, wants: &Wants, pool: &Pool) -> Result<Option<Answer>, StreamError> {
        let everybody = self
            .known
            .iter()
            .map(|known| coarse(&known.name, &known.dataset, known.colour, wants.own.contains(&known.name)));
        let mut shots: Vec<(usize, Option<WantId>, Wanted)> = Vec::new();
        let mut add = |array: usize, id: Option<WantId>, want: &Want| match self.known[array].colour {
            None => shots.push((array, id, Wanted::of(array, want))),
            Some(colour) => {
                shots.extend(colour.split(want).iter().map(|want| (array, id, Wanted::of(array, want))));
            }
        };
        everybody.enumerate().for_each(|(array, want)| add(array, None, &want));
        for (id, want) in &wants.windows {
            if let Some(array) = self.known.iter().position(|known| known.name == want.view) {
                add(array, Some(*id), want);
            }
        }
        let mut ask = Ask { next, wanted: shots.iter().map(|(.., wanted)| wanted.clone()).collect() };
        let mut bytes = serde_json::to_vec(&ask).map_err(|e| StreamError::Program(e.into()))?;
        while bytes.len() > ASK || self.values_of(&ask) > VALUES as usize {
            // Of very many arrays, or windows, the last are left out.
            if ask.wanted.pop().is_none() {
                break;
            }
            bytes = serde_json::to_vec(&ask).map_err(|e| StreamError::Program(e.into()))?;
        }
        shots.truncate(ask.wanted.len());
        bytes.resize(ASK, b' ');
        match self.asks.write(&bytes) {
            // They have seen the program's end before the gateway did.
            Err(PipeError::ReadersGone { .. }) => return Ok(None),
            written => written.map_err(program)?,
        };
        let Some(_) = self.tiles.peek().map_err(program)? else { return Ok(None) };
        self.memory.resize(self.tiles.local_len_bytes(), 0);
        self.tiles.read(&mut self.memory).map_err(program)?;
        Ok(Some(self.compose(&shots, pool)))
    }

    /// Bytes of the answers, about.
    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    fn values_of(&self, ask: &Ask) -> usize {
        let of = |wanted: &Wanted| {
            let shot = wanted.shot(&self.known)?;
            let held = self.known[wanted.array].held.iter().flatten();
            Some(held.map(|held| shot.values_of(held)).sum::<usize>())
        };
        ask.wanted.iter().filter_map(of).sum()
    }

    /// Puts the units' tiles together.
    fn compose(&self, shots: &[(usize, Option<WantId>, Wanted)], pool: &Pool) -> Answer {
        let shots: Vec<_> = shots
            .iter()
            .filter_map(|(array, id, wanted)| {
                let shot = wanted.shot(&self.known)?;
                let picture = shot.picture();
                Some((&self.known[*array], *id, shot, picture))
            })
            .collect();
        let mut shots = shots;
        let units = self.known.first().map_or(0, |known| known.held.len());
        let mut rest = &self.memory[..];
        for unit in 0..units {
            for (known, _, shot, picture) in &mut shots {
                for held in &known.held[unit] {
                    let (own, behind) = rest.split_at((4 * shot.values_of(held)).min(rest.len()));
                    rest = behind;
                    let values = own.chunks_exact(4).map(|v| f32::from_le_bytes([v[0], v[1], v[2], v[3]]));
                    if let Some(tile) = shot.tile(held, values.collect()) {
                        // One that does not fit is of another ask: no unit sends such.
                        let _ = picture.add(&tile);
                    }
                }
            }
        }
        let said = unpack(self.tiles.values()).unwrap_or_default();
        let (mut step, mut values) = (0, Vec::new());
        for (name, value) in said {
            match (&name[..], value) {
                ("step", Value::Integer(n)) => step = n.as_u64().unwrap_or(0),
                ("values", Value::Binary(bytes)) => values = bytes,
                _ => {}
            }
        }
        let (mut views, mut shots) = (Vec::new(), shots.into_iter().peekable());
        while let Some((known, id, shot, picture)) = shots.next() {
            let Some(colour) = known.colour else {
                views.push(shot.view(&known.name, picture.finish(), id, pool));
                continue;
            };
            let mut channels = vec![(shot, picture)];
            while let Some((.., shot, picture)) =
                shots.next_if(|(other, of, ..)| std::ptr::eq(*other, known) && *of == id)
            {
                channels.push((shot, picture));
            }
            // Channels that are left out, for want of room, leave no colour.
            if channels.len() as u64 == colour.channels() {
                views.extend(colour::view(&known.name, known.dataset.elem(), channels, id, pool));
            }
        }
        Answer { step, values, views }
    }

    /// Ends the units' threads.
    pub fn close(&mut self) {
        let _ = self.asks.close();
        let _ = self.tiles.close();
    }

    /// Tells them that it has failed, and why.
    pub fn abort(&mut self, why: &str) {
        self.asks.abort_because(why);
        self.tiles.abort_because(why);
    }
}
