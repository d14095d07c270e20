//! Expectations of a reader.

use polyduct_layout::ElemType;

/// What a reader expects of the dataset at the other end.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// The shape of one step; any if `None`. Needed where the other end gives plain bytes.
    pub shape: Option<Vec<u64>>,
    /// The element type; any if `None`. Needed where the other end gives plain bytes.
    pub elem: Option<ElemType>,
    /// Whether another element type may be converted into [`elem`](Expect::elem) on the way: f32↔bf16,
    /// f32↔f16 and f64↔f32. Plain bytes have the expected type.
    pub convert: bool,
}
