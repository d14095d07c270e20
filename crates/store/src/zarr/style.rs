//! The style in which an array is written down beside others: version, names of chunks, fill value, names of
//! dimensions.

use super::{fill, sizes, v2, wrong, Compression, Configuration, ZarrError};
use polyduct_layout::ElemType;
use serde_json::{json, Map, Value};

/// The version of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// `.zarray` and `.zattrs`.
    V2,
    /// `zarr.json`.
    #[default]
    V3,
}

/// The names of an array's dimensions; some may have none.
pub type Dims = Vec<Option<String>>;

/// What of an array's attributes says how its elements are to be taken: nothing of elements of another type.
const OF_ELEMENTS: [&str; 7] =
    ["_FillValue", "missing_value", "scale_factor", "add_offset", "dtype", "_Unsigned", "valid_range"];

/// How chunks are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub v2: bool,
    pub separator: char,
}

impl Default for Keys {
    /// All in one directory.
    fn default() -> Keys {
        Keys { v2: false, separator: '.' }
    }
}

impl Keys {
    pub fn parse(value: Option<&Value>) -> Result<Keys, ZarrError> {
        let (name, configuration): (_, Configuration<'_>) = super::named("chunk_key_encoding", value)?;
        let v2 = match name {
            "default" => false,
            "v2" => true,
            _ => return Err(wrong("chunk_key_encoding", "\"default\" or \"v2\"", value)),
        };
        match configuration.and_then(|c| c.get("separator")).map(Value::as_str) {
            Some(Some("/")) => Ok(Keys { v2, separator: '/' }),
            Some(Some(".")) => Ok(Keys { v2, separator: '.' }),
            None => Ok(Keys { v2, separator: if v2 { '.' } else { '/' } }),
            _ => Err(wrong("chunk_key_encoding.separator", "\"/\" or \".\"", value)),
        }
    }

    /// The name of a chunk's file: made of numbers, `c` and separators and nothing else.
    pub fn name(self, coords: &[u64]) -> String {
        let Keys { v2, separator } = self;
        let numbers: Vec<String> = coords.iter().map(u64::to_string).collect();
        let numbers = numbers.join(separator.encode_utf8(&mut [0; 4]));
        match (v2, coords.is_empty()) {
            (true, true) => "0".into(),
            (true, false) => numbers,
            (false, true) => "c".into(),
            (false, false) => format!("c{separator}{numbers}"),
        }
    }
}

/// What an array's metadata say of it, as far as it is understood: it may be replaced, and others stand
/// beside it, whatever its codecs are.
#[derive(Clone, Debug)]
pub struct Described {
    elem: Option<ElemType>,
    shape: Vec<u64>,
    keys: Keys,
    fill: Option<Value>,
    dims: Option<Dims>,
    attributes: Map<String, Value>,
}

impl Described {
    /// By `zarr.json`.
    pub fn of_v3(document: &Value) -> Option<Described> {
        (document.get("node_type")? == "array").then_some(())?;
        Some(Described {
            elem: fill::elem(document.get("data_type")).ok(),
            shape: sizes("shape", document.get("shape")).ok()?,
            keys: Keys::parse(document.get("chunk_key_encoding")).ok()?,
            fill: document.get("fill_value").cloned(),
            dims: dims_of(document.get("dimension_names")).ok().flatten(),
            attributes: document.get("attributes").and_then(Value::as_object).cloned().unwrap_or_default(),
        })
    }

    /// By `.zarray` and `.zattrs`.
    pub fn of_v2(document: &Value, attributes: Option<&Value>) -> Option<Described> {
        let mut attributes = attributes.and_then(Value::as_object).cloned().unwrap_or_default();
        let shape = sizes("shape", document.get("shape")).ok()?;
        Some(Described {
            elem: v2::elem(document.get("dtype")).ok().map(|(elem, _)| elem),
            keys: v2::keys(document.get("dimension_separator")).ok()?,
            fill: document.get("fill_value").cloned(),
            dims: v2::take_dims(&mut attributes, shape.len()),
            shape,
            attributes,
        })
    }

    fn named(&self) -> impl Iterator<Item = (&str, u64)> {
        let names = self.dims.iter().flatten();
        names.zip(&self.shape).filter_map(|(name, &size)| Some((name.as_deref()?, size)))
    }
}

/// `dimension_names`.
pub(super) fn dims_of(value: Option<&Value>) -> Result<Option<Dims>, ZarrError> {
    let fail = || wrong("dimension_names", "a list of names, or of null", value);
    let names = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(names)) => names,
        _ => return Err(fail()),
    };
    let name = |name: &Value| match name {
        Value::Null => Ok(None),
        Value::String(name) => Ok(Some(name.clone())),
        _ => Err(fail()),
    };
    names.iter().map(name).collect::<Result<Dims, _>>().map(Some)
}

/// What users say of an array that is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What they write down of it.
    pub attributes: Map<String, Value>,
    /// What they call its dimensions.
    pub dims: Option<Dims>,
    /// What its chunks are compressed with.
    pub compression: Compression,
}

/// What stands where an array is written.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The version of the group, or of the array that is replaced.
    pub version: Version,
    /// The array's name in its group.
    pub name: String,
    /// The array that is replaced.
    pub old: Option<Described>,
    /// The other arrays of its group, with their names.
    pub others: Vec<(String, Described)>,
}

/// How an array is written down.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Style {
    version: Version,
    keys: Keys,
    fill: Option<Value>,
    dims: Option<Dims>,
    attributes: Map<String, Value>,
    compression: Compression,
}

impl Style {
    /// As what is there is: what nobody says anew stays.
    pub fn new(place: &Surroundings, about: &About, elem: ElemType, shape: &[u64]) -> Style {
        let Surroundings { version, old, others, .. } = place;
        let first = old.as_ref().or(others.first().map(|(_, d)| d));
        let keys = first.map(|d| d.keys).unwrap_or(match version {
            Version::V2 => v2::KEYS,
            Version::V3 => Keys::default(),
        });
        let same = old.as_ref().filter(|old| old.elem == Some(elem));
        let mut attributes = match old {
            Some(old) if about.attributes.is_empty() => old.attributes.clone(),
            _ => about.attributes.clone(),
        };
        if about.attributes.is_empty() && same.is_none() {
            attributes.retain(|name, _| !OF_ELEMENTS.contains(&name.as_str()));
        }
        Style {
            version: *version,
            // Version 2 has other names only.
            keys: Keys { v2: keys.v2 || *version == Version::V2, ..keys },
            fill: same.and_then(|old| old.fill.clone()),
            dims: place.dims(about, shape),
            attributes,
            compression: about.compression,
        }
    }

    /// The name of a chunk's file.
    pub fn key(&self, coords: &[u64]) -> String {
        self.keys.name(coords)
    }

    /// The array's metadata: files in its directory, the one that makes it an array last.
    pub fn documents(&self, elem: ElemType, shape: &[u64], chunk: &[u64]) -> Vec<(&'static str, Value)> {
        if self.version == Version::V2 {
            let mut attributes = self.attributes.clone();
            if let Some(dims) = &self.dims {
                attributes.insert(v2::DIMS.into(), json!(dims));
            }
            // Programs that read with xarray take a fill value for what is missing.
            let fill = self.fill.clone().unwrap_or(Value::Null);
            return vec![
                (".zattrs", Value::Object(attributes)),
                (
                    ".zarray",
                    v2::document(
                        elem,
                        shape,
                        chunk,
                        fill,
                        self.keys.separator,
                        self.compression.compressor(),
                    ),
                ),
            ];
        }
        let fill = self.fill.clone().filter(|fill| fill::value(elem, Some(fill)).is_ok());
        let mut document = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": fill::name(elem),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {
                "name": if self.keys.v2 { "v2" } else { "default" },
                "configuration": {"separator": self.keys.separator},
            },
            "fill_value": fill.unwrap_or_else(|| fill::zero(elem)),
            "codecs": self.compression.codecs(elem),
            "attributes": self.attributes,
        });
        if let Some(dims) = &self.dims {
            document["dimension_names"] = json!(dims);
        }
        vec![("zarr.json", document)]
    }
}

impl Surroundings {
    /// The names of the dimensions, where any is told or the array's group has names. Two arrays of a group
    /// whose dimensions have one name but not one size could not be opened together: those get names that
    /// nobody has.
    fn dims(&self, about: &About, shape: &[u64]) -> Option<Dims> {
        let of_this = |dims: &Option<Dims>| dims.clone().filter(|dims| dims.len() == shape.len());
        let told = of_this(&about.dims).or_else(|| of_this(&self.old.as_ref()?.dims));
        let sizes = || self.others.iter().flat_map(|(_, d)| d.named());
        let mut dims = match told {
            Some(dims) => dims,
            None if sizes().next().is_none() => return None,
            // The values of a dimension have its name, and what has the shape of another mostly has its
            // dimensions.
            None if shape.len() == 1 && sizes().any(|found| found == (&self.name, shape[0])) => {
                vec![Some(self.name.clone())]
            }
            None => {
                let mut alike = self.others.iter().filter(|(_, d)| d.shape == shape).map(|(_, d)| &d.dims);
                let first = alike.next().cloned().flatten();
                match alike.all(|dims| *dims == first) {
                    true => first.unwrap_or_else(|| vec![None; shape.len()]),
                    false => vec![None; shape.len()],
                }
            }
        };
        let own_names = self.version == Version::V2 || sizes().next().is_some();
        for (axis, (dim, size)) in dims.iter_mut().zip(shape).enumerate() {
            let clashes = |dim: &str| sizes().any(|(name, other)| name == dim && other != *size);
            if dim.as_deref().map_or(own_names, clashes) {
                *dim = Some(format!("{}_dim_{axis}", self.name));
            }
        }
        Some(dims)
    }
}
