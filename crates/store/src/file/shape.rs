//! Finds the dataset that a file holds, and how many steps of it.

use crate::npy::Header;
use crate::FileError;
use polyduct_copy::Conversion;
use polyduct_layout::{Dataset, ElemType, Layout, LayoutError, Mapping};
use polyduct_port::Expect;

/// What a file holds, as one program reads it.
#[derive(Debug)]
pub struct Contents {
    /// One step as it lies in the file.
    pub file: Mapping,
    /// One step as the program gets it: the same shape, perhaps another element type.
    pub program: Mapping,
    /// Number of steps.
    pub steps: u64,
    /// Whether they are a dimension of the file, even if there is just one.
    pub stepped: bool,
    /// Elements from one element of a step to the next: 1, but in a Fortran-ordered file of several steps.
    pub stride: u64,
    /// Whether the file says that it is in Fortran's order.
    pub fortran: bool,
    /// What happens to the elements on the way.
    pub conversion: Option<Conversion>,
}

impl Contents {
    /// Offset of a step's first byte from the first byte of the data.
    pub fn step_at(&self, step: u64) -> u64 {
        let dataset = self.file.dataset();
        match self.stride {
            1 => step.saturating_mul(dataset.len_bytes()),
            _ => step * dataset.elem().len_bytes(),
        }
    }

    /// Whether the file is in Fortran's order, and that is not the row-major one as well.
    pub fn is_fortran(&self) -> bool {
        self.fortran
            && (self.stride > 1 || self.file.dataset().shape().iter().filter(|&&n| n > 1).count() > 1)
    }

    /// Bytes of all steps; the largest number where they cannot be counted.
    pub fn len_bytes(&self) -> u64 {
        self.file.dataset().len_bytes().saturating_mul(self.steps)
    }
}

/// The file's own mapping: the whole array in one unit.
pub fn file_mapping(dataset: &Dataset, fortran: bool) -> Result<Mapping, LayoutError> {
    let dims = dataset.shape().len().max(1);
    let mut text = "*".to_owned() + &",*".repeat(dims - 1);
    if fortran {
        text += ";order=F";
    }
    text.parse::<Layout>()?.bind(dataset, 1)
}

/// What a .npy file holds.
///
/// The file's dimensions are those of the expected shape, or of the layout: then it has one step. Or it has
/// one more: then its first dimension counts steps. A layout that fits any number of dimensions (stripes,
/// digits that count all elements) gets one step, unless a shape is expected.
pub fn of_npy(
    path: &str,
    header: &Header,
    layout: &Layout,
    units: u32,
    expect: &Expect,
) -> Result<Contents, FileError> {
    let elem = taken_for(header.elem, expect);
    let conversion = conversion(path, elem, expect)?;
    let shape = header.shape.as_slice();
    let behind_steps = shape.split_first();
    let bind = |shape: &[u64]| {
        Dataset::new(shape, expect.elem.unwrap_or(elem)).and_then(|d| layout.bind(&d, units.into()))
    };
    let (program, steps) = match (&expect.shape, behind_steps) {
        (Some(expected), _) if expected == shape => (bind(shape), None),
        (Some(expected), Some((&steps, one))) if expected == one => (bind(one), Some(steps)),
        (Some(expected), _) => {
            return Err(FileError::ShapeDiffers {
                path: path.to_owned(),
                expected: expected.clone(),
                found: shape.to_vec(),
            })
        }
        (None, Some((&steps, one))) => match bind(shape) {
            Ok(program) => (Ok(program), None),
            Err(e) => match (bind(one), &e) {
                (Ok(program), _) => (Ok(program), Some(steps)),
                // The layout has the dimensions of one step: what is wrong with it there is what is wrong.
                (Err(inner), LayoutError::DimsDiffer { layout, .. }) if *layout == one.len() => {
                    (Err(inner), None)
                }
                _ => (Err(e), None),
            },
        },
        (None, None) => (bind(shape), None),
    };
    let program = program.map_err(FileError::layout(path))?;
    let file = Dataset::new(program.dataset().shape(), elem).and_then(|d| file_mapping(&d, header.fortran));
    let file = file.map_err(FileError::layout(path))?;
    let stride = if header.fortran { steps.unwrap_or(1).max(1) } else { 1 };
    Ok(Contents {
        file,
        program,
        steps: steps.unwrap_or(1),
        stepped: steps.is_some(),
        stride,
        fortran: header.fortran,
        conversion,
    })
}

/// What a raw file of so many bytes holds: steps of the expected dataset.
pub fn of_raw(
    path: &str,
    len: u64,
    layout: &Layout,
    units: u32,
    expect: &Expect,
) -> Result<Contents, FileError> {
    let (Some(shape), Some(elem)) = (&expect.shape, expect.elem) else {
        return Err(FileError::NeedsDataset { path: path.to_owned() });
    };
    let dataset = Dataset::new(shape, elem).map_err(FileError::layout(path))?;
    let step = dataset.len_bytes();
    let steps = match (step, len) {
        // No bytes are one empty array.
        (0, 0) => 1,
        (0, _) => return Err(FileError::BadLength { path: path.to_owned(), found: len, step }),
        _ if !len.is_multiple_of(step) => {
            return Err(FileError::BadLength { path: path.to_owned(), found: len, step })
        }
        _ => len / step,
    };
    let program = layout.bind(&dataset, units.into()).map_err(FileError::layout(path))?;
    let file = file_mapping(&dataset, false).map_err(FileError::layout(path))?;
    Ok(Contents { file, program, steps, stepped: false, stride: 1, fortran: false, conversion: None })
}

/// What the elements of a file are taken for: two bytes for bfloat16, for which NumPy has no name, where that is
/// expected.
fn taken_for(found: ElemType, expect: &Expect) -> ElemType {
    match (found, expect.elem) {
        (ElemType::Bytes(2), Some(ElemType::Bf16)) => ElemType::Bf16,
        (found, _) => found,
    }
}

/// Whether elements of a file can be what is expected.
pub fn fits(found: ElemType, expect: &Expect) -> bool {
    let found = taken_for(found, expect);
    expect.elem.is_none_or(|wanted| wanted == found || Conversion::between(found, wanted).is_some())
}

/// A file's mapping, of elements as they are taken, and what they are converted by.
///
/// # Errors
/// As [`conversion`]; [`PortError::Layout`](polyduct_port::PortError).
pub fn expected(
    path: &str,
    file: &Mapping,
    expect: &Expect,
) -> Result<(Mapping, Option<Conversion>), FileError> {
    let (found, elem) = (file.dataset().elem(), taken_for(file.dataset().elem(), expect));
    let conversion = conversion(path, elem, expect)?;
    if elem == found {
        return Ok((file.clone(), conversion));
    }
    let dataset = Dataset::new(file.dataset().shape(), elem);
    let bound = dataset.and_then(|dataset| file.layout().bind(&dataset, file.units()));
    Ok((bound.map_err(FileError::layout(path))?, conversion))
}

/// The conversion from the file's element type, if one is needed.
///
/// # Errors
/// [`FileError::ElemDiffers`] where it is not asked for, or there is none.
fn conversion(path: &str, found: ElemType, expect: &Expect) -> Result<Option<Conversion>, FileError> {
    let expected = match expect.elem {
        Some(e) if e != found => e,
        _ => return Ok(None),
    };
    let exists = Conversion::between(found, expected);
    let hint = match exists {
        Some(_) if expect.convert => return Ok(exists),
        Some(_) => "a program that opens the file with convert=True gets it converted",
        None => "conversions exist for f32↔bf16, f32↔f16, f64↔f32",
    };
    Err(FileError::ElemDiffers { path: path.to_owned(), expected, found, hint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_port::PortError;

    fn npy(shape: &[u64], layout: &str, expect: &Expect) -> Result<(Vec<u64>, u64), FileError> {
        let header = Header {
            elem: ElemType::F32,
            descr: None,
            big_endian: false,
            fortran: false,
            shape: shape.to_vec(),
        };
        let contents = of_npy("f.npy", &header, &layout.parse().unwrap(), 4, expect)?;
        Ok((contents.program.dataset().shape().to_vec(), contents.steps))
    }

    #[test]
    fn the_number_of_dimensions_says_whether_there_are_steps() {
        let any = Expect::default();
        assert_eq!(npy(&[12, 8], "block,*", &any), Ok((vec![12, 8], 1)));
        assert_eq!(npy(&[5, 12, 8], "block,*", &any), Ok((vec![12, 8], 5)));
        assert_eq!(npy(&[0, 12, 8], "block,*", &any), Ok((vec![12, 8], 0)));
        assert_eq!(
            npy(&[2, 1, 1, 1, 1, 1, 1, 1, 4], "*,*,*,*,*,*,*,block", &any),
            Ok((vec![1, 1, 1, 1, 1, 1, 1, 4], 2))
        );
        assert_eq!(npy(&[5, 12, 8], "stripe(64)", &any), Ok((vec![5, 12, 8], 1)));
        assert_eq!(npy(&[5, 4, 2], "digits(4x2;unit=0)", &any), Ok((vec![4, 2], 5)));
        let told = Expect { shape: Some(vec![12, 8]), ..Expect::default() };
        assert_eq!(npy(&[5, 12, 8], "stripe(64)", &told), Ok((vec![12, 8], 5)));
        let scalar = Expect { shape: Some(vec![]), ..Expect::default() };
        assert_eq!(npy(&[5], "*@4", &scalar), Ok((vec![], 5)));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let any = Expect::default();
        let e = npy(&[5, 6, 12, 8], "block,*", &any).unwrap_err();
        assert!(
            matches!(
                e,
                FileError::Port(PortError::Layout {
                    source: LayoutError::DimsDiffer { layout: 2, dataset: 4 },
                    ..
                })
            ),
            "{e}"
        );
        let e = npy(&[5, 12, 8], "cut(0,3,6,90),*", &any).unwrap_err();
        assert!(
            matches!(e, FileError::Port(PortError::Layout { source: LayoutError::CutPastEnd { .. }, .. })),
            "{e}"
        );
        let told = Expect { shape: Some(vec![8, 12]), ..Expect::default() };
        assert!(matches!(npy(&[12, 8], "block,*", &told), Err(FileError::ShapeDiffers { .. })));
        let other = Expect { elem: Some(ElemType::F64), ..Expect::default() };
        let differs = npy(&[12, 8], "block,*", &other).unwrap_err();
        assert!(matches!(differs, FileError::ElemDiffers { hint, .. } if hint.contains("convert=True")));
        assert!(npy(&[12, 8], "block,*", &Expect { convert: true, ..other }).is_ok());
        assert!(matches!(
            npy(&[1 << 40, 1 << 40], "block,*", &any),
            Err(FileError::Port(PortError::Layout { .. }))
        ));
    }

    #[test]
    fn raw_files_count_their_steps() {
        let raw = |len, expect: &Expect| {
            of_raw("f.raw", len, &"block".parse().unwrap(), 2, expect).map(|c| c.steps)
        };
        let expect = Expect { shape: Some(vec![6]), elem: Some(ElemType::I32), convert: false };
        assert_eq!(raw(24, &expect), Ok(1));
        assert_eq!(raw(72, &expect), Ok(3));
        assert_eq!(raw(0, &expect), Ok(0));
        assert_eq!(raw(25, &expect), Err(FileError::BadLength { path: "f.raw".into(), found: 25, step: 24 }));
        assert_eq!(raw(24, &Expect::default()), Err(FileError::NeedsDataset { path: "f.raw".into() }));
        let empty = Expect { shape: Some(vec![0]), ..expect };
        assert_eq!(raw(0, &empty), Ok(1));
        assert!(matches!(raw(4, &empty), Err(FileError::BadLength { .. })));
    }
}
