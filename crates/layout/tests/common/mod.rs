//! The naive oracle: what every byte of every unit's memory is, straight from the table in the design, one
//! element at a time. It shares no code with the crate; layouts are made at random together with their text.
#![allow(dead_code)]

/// A small deterministic generator (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
    pub fn shuffle<T>(&mut self, v: &mut [T]) {
        for i in (1..v.len()).rev() {
            v.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[derive(Clone, Debug)]
pub enum Dist {
    Whole,
    Block,
    Balanced,
    Cyclic(u64),
    Cut(Vec<u64>),
}

#[derive(Clone, Debug)]
pub enum Spec {
    Regular {
        dims: Vec<(Dist, Vec<usize>)>,
        grid: Vec<u64>,
        order: Vec<usize>,
        halo: Vec<Halo>,
        text: String,
    },
    Boxes {
        units: Vec<Vec<Vec<(u64, u64)>>>,
        order: Vec<usize>,
        text: String,
    },
    Digits {
        radices: Vec<u64>,
        unit: Vec<usize>,
        offset: Vec<usize>,
        text: String,
    },
    Stripe {
        bytes: u64,
        units: u64,
        text: String,
    },
}

/// Cells before and after a part, and whether they go around the ends.
pub type Halo = (u64, u64, bool);

/// A byte of a unit's memory: which byte of the row-major file it is, and whether it is a halo copy.
pub type Byte = (u64, bool);

pub fn join<T: ToString>(items: &[T], by: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(by)
}

impl Spec {
    pub fn text(&self) -> &str {
        match self {
            Spec::Regular { text, .. } | Spec::Boxes { text, .. } | Spec::Digits { text, .. } => text,
            Spec::Stripe { text, .. } => text,
        }
    }

    pub fn units(&self) -> u64 {
        match self {
            Spec::Regular { grid, .. } => grid.iter().product(),
            Spec::Boxes { units, .. } => units.len() as u64,
            Spec::Digits { radices, unit, .. } => unit.iter().map(|&d| radices[d]).product(),
            Spec::Stripe { units, .. } => *units,
        }
    }

    /// The bytes of a unit's memory in order.
    pub fn memory(&self, shape: &[u64], elem: u64, unit: u64) -> Vec<Byte> {
        match self {
            Spec::Stripe { bytes, units, .. } => {
                let len = shape.iter().product::<u64>() * elem;
                (0..len).filter(|b| b / bytes % units == unit).map(|b| (b, false)).collect()
            }
            _ => {
                let elems = self.elements(shape, unit);
                elems.iter().flat_map(|&(e, halo)| (0..elem).map(move |b| (e * elem + b, halo))).collect()
            }
        }
    }

    fn elements(&self, shape: &[u64], unit: u64) -> Vec<Byte> {
        match self {
            Spec::Regular { dims, grid, order, halo, .. } => {
                let mut coords = vec![0; grid.len()];
                let mut rest = unit;
                for a in (0..grid.len()).rev() {
                    coords[a] = rest % grid[a];
                    rest /= grid[a];
                }
                let mut lists = Vec::new();
                for (k, &n) in shape.iter().enumerate() {
                    let (dist, axes) = &dims[k];
                    let (mut p, mut parts) = (0, 1);
                    for &a in axes {
                        p = p * grid[a] + coords[a];
                        parts *= grid[a];
                    }
                    lists.push(held(dist, n, p, parts, halo[k]));
                }
                packed(&lists, shape, order)
            }
            Spec::Boxes { units, order, .. } => {
                let mut all = Vec::new();
                for b in &units[unit as usize] {
                    let lists: Vec<Vec<Byte>> =
                        b.iter().map(|&(lo, hi)| (lo..hi).map(|i| (i, false)).collect()).collect();
                    all.extend(packed(&lists, shape, order));
                }
                all
            }
            Spec::Digits { radices, unit: unit_digits, offset, .. } => {
                let total: u64 = radices.iter().product();
                let mut mine = Vec::new();
                for e in 0..total {
                    let mut values = vec![0; radices.len()];
                    let mut rest = e;
                    for d in (0..radices.len()).rev() {
                        values[d] = rest % radices[d];
                        rest /= radices[d];
                    }
                    let number = |list: &[usize]| list.iter().fold(0, |n, &d| n * radices[d] + values[d]);
                    if number(unit_digits) == unit {
                        mine.push((number(offset), e));
                    }
                }
                mine.sort_unstable();
                mine.into_iter().map(|(_, e)| (e, false)).collect()
            }
            Spec::Stripe { .. } => unreachable!(),
        }
    }
}

/// Indices that part `p` of `parts` holds along one dimension, in order, and which are halo.
fn held(dist: &Dist, n: u64, p: u64, parts: u64, halo: Halo) -> Vec<Byte> {
    let owned: Vec<u64> = match dist {
        Dist::Whole => (0..n).collect(),
        Dist::Block => {
            let b = n.div_ceil(parts);
            (0..n).filter(|i| i / b == p).collect()
        }
        Dist::Balanced => {
            let sizes: Vec<u64> = (0..parts).map(|q| n / parts + u64::from(q < n % parts)).collect();
            let lo: u64 = sizes[..p as usize].iter().sum();
            (lo..lo + sizes[p as usize]).collect()
        }
        Dist::Cyclic(b) => (0..n).filter(|i| i / b % parts == p).collect(),
        Dist::Cut(at) => {
            let hi = at.get(p as usize + 1).copied().unwrap_or(n);
            (at[p as usize]..hi).collect()
        }
    };
    let (Some(&lo), Some(&hi)) = (owned.first(), owned.last()) else { return Vec::new() };
    if halo == (0, 0, false) {
        return owned.into_iter().map(|i| (i, false)).collect();
    }
    let (lo, hi, n) = (lo as i64, hi as i64, n as i64);
    let mut all = Vec::new();
    for i in lo - halo.0 as i64..=hi + halo.1 as i64 {
        let own = (lo..=hi).contains(&i);
        if halo.2 || (0..n).contains(&i) {
            all.push((i.rem_euclid(n) as u64, !own));
        }
    }
    all
}

/// The product of lists of indices, stored with `order` (slowest dimension first).
fn packed(lists: &[Vec<Byte>], shape: &[u64], order: &[usize]) -> Vec<Byte> {
    let mut cells: Vec<(Vec<u64>, bool)> = vec![(vec![0; lists.len()], false)];
    for k in order.iter().copied().filter(|&k| k < lists.len()) {
        let mut next = Vec::new();
        for (index, halo) in &cells {
            for &(i, h) in &lists[k] {
                let mut index = index.clone();
                index[k] = i;
                next.push((index, *halo || h));
            }
        }
        cells = next;
    }
    cells.into_iter().map(|(ix, h)| (ix.iter().zip(shape).fold(0, |e, (&i, &n)| e * n + i), h)).collect()
}

/// A shape of up to `max_dims` dimensions with at most `max` elements, sometimes with sizes 0 and 1.
pub fn random_shape(rng: &mut Rng, max_dims: u64, max: u64) -> Vec<u64> {
    let n = rng.below(max_dims + 1);
    let mut shape = Vec::new();
    let mut room = max;
    for _ in 0..n {
        let size = match rng.below(40) {
            0 => 0,
            1..=4 => 1,
            5..=14 => rng.pick(&[2, 4, 8, 16]),
            _ => 2 + rng.below(14),
        }
        .min(room);
        room /= size.max(1);
        shape.push(size);
    }
    shape
}

pub fn random_regular(rng: &mut Rng, shape: &[u64]) -> Spec {
    let n = shape.len();
    let kinds: Vec<u64> = (0..n).map(|_| rng.below(6)).collect();
    let distributed = kinds.iter().filter(|&&k| k > 0).count();
    let default_grid = rng.chance(4);
    let (grid, text_grid) = if default_grid {
        let units = 1 + rng.below(12);
        (if distributed == 0 { vec![units] } else { most_even(units, distributed) }, String::new())
    } else {
        let mut grid: Vec<u64> = Vec::new();
        let axes = (distributed as u64 + rng.below(3)).max(1);
        for _ in 0..axes {
            let left = 24 / grid.iter().product::<u64>();
            grid.push(1 + rng.below(left.min(4)));
        }
        rng.shuffle(&mut grid);
        let text = format!("@{}", join(&grid, "x"));
        (grid, text)
    };
    // Some dimensions name their axes; the others take those not named, in order.
    let mut pool: Vec<usize> = (0..grid.len()).collect();
    rng.shuffle(&mut pool);
    let mut spare = grid.len() - distributed.min(grid.len());
    let mut named: Vec<Option<Vec<usize>>> = vec![None; n];
    let bracket = rng.chance(2);
    for k in 0..n {
        if kinds[k] > 0 && bracket && rng.chance(2) {
            let mut axes = vec![pool.pop().unwrap()];
            while spare > 0 && rng.chance(2) {
                axes.push(pool.pop().unwrap());
                spare -= 1;
            }
            named[k] = Some(axes);
        }
    }
    pool.sort_unstable();
    let mut free = pool.into_iter();
    let (mut dims, mut words, mut halo) = (Vec::new(), Vec::new(), Vec::new());
    for k in 0..n {
        let axes = match (&named[k], kinds[k]) {
            (Some(a), _) => a.clone(),
            (None, 0) => Vec::new(),
            (None, _) => vec![free.next().unwrap()],
        };
        let parts: u64 = axes.iter().map(|&a| grid[a]).product();
        let dist = match kinds[k] {
            0 => Dist::Whole,
            1 => Dist::Block,
            2 => Dist::Balanced,
            3 => Dist::Cyclic(1),
            4 => Dist::Cyclic(1 + rng.below(5)),
            _ => {
                let mut at: Vec<u64> = (1..parts).map(|_| rng.below(shape[k] + 1)).collect();
                at.push(0);
                at.sort_unstable();
                Dist::Cut(at)
            }
        };
        let word = match &dist {
            Dist::Whole => "*".into(),
            Dist::Block => "block".into(),
            Dist::Balanced => "balanced".into(),
            Dist::Cyclic(1) if rng.chance(2) => "cyclic".into(),
            Dist::Cyclic(b) => format!("cyclic({b})"),
            Dist::Cut(at) => format!("cut({})", join(at, ",")),
        };
        words.push(match &named[k] {
            Some(a) => format!("{word}[{}]", join(a, ",")),
            None => word,
        });
        let cyclic = matches!(dist, Dist::Cyclic(_));
        let widest = shape[k].max(1) + 1;
        halo.push(match (cyclic, rng.chance(2)) {
            (true, _) => (0, 0, false),
            (_, around) if !around => (rng.below(3), rng.below(4), false),
            _ => (rng.below(widest.min(4)), rng.below(widest.min(5)), true),
        });
        dims.push((dist, axes));
    }
    if n == 0 {
        words.push("*".into());
    }
    let mut text = format!("{}{text_grid}", words.join(","));
    let mut order: Vec<usize> = (0..n).collect();
    match rng.below(4) {
        0 => {
            order.reverse();
            text += ";order=F";
        }
        1 if n > 0 => {
            rng.shuffle(&mut order);
            text += &format!(";order={}", join(&order, ","));
        }
        _ => {}
    }
    if n > 0 && rng.chance(3) {
        let each: Vec<String> = halo
            .iter()
            .map(|&(a, b, around)| {
                let width = if a == b { a.to_string() } else { format!("{a}:{b}") };
                width + if around { "~" } else { "" }
            })
            .collect();
        text += &format!(";halo={}", each.join(","));
    } else {
        halo = vec![(0, 0, false); n];
    }
    Spec::Regular { dims, grid, order, halo, text }
}

/// `MPI_Dims_create` by trying everything: falling sizes, the smallest largest first.
pub fn most_even(units: u64, axes: usize) -> Vec<u64> {
    fn all(units: u64, axes: usize, cap: u64) -> Vec<Vec<u64>> {
        if axes == 0 {
            return if units == 1 { vec![vec![]] } else { vec![] };
        }
        let mut out = Vec::new();
        for d in (1..=units.min(cap)).filter(|d| units.is_multiple_of(*d)) {
            for mut rest in all(units / d, axes - 1, d) {
                rest.insert(0, d);
                out.push(rest);
            }
        }
        out
    }
    all(units, axes, units).into_iter().min().unwrap()
}

type NBox = Vec<(u64, u64)>;

/// Boxes that cover every element once, some units perhaps with copies of another's; or, for readers, any
/// boxes at all.
pub fn random_boxes(rng: &mut Rng, shape: &[u64], writer: bool) -> Spec {
    let n_units = 1 + rng.below(6) as usize;
    let mut units: Vec<Vec<NBox>> = vec![Vec::new(); n_units];
    if writer {
        let mut whole: Vec<NBox> = vec![shape.iter().map(|&n| (0, n)).collect()];
        for _ in 0..rng.below(8) {
            let i = rng.below(whole.len() as u64) as usize;
            let k = rng.below(shape.len() as u64) as usize;
            let (lo, hi) = whole[i][k];
            let cut = lo + rng.below(hi - lo + 1);
            let mut upper = whole[i].clone();
            whole[i][k].1 = cut;
            upper[k].0 = cut;
            whole.push(upper);
        }
        for b in whole {
            let u = rng.below(n_units as u64) as usize;
            units[u].push(b);
        }
        for _ in 0..rng.below(3) {
            let copy = units[rng.below(units.len() as u64) as usize].clone();
            units.push(copy);
        }
    } else {
        for unit in units.iter_mut() {
            for _ in 0..rng.below(4) {
                unit.push(
                    shape
                        .iter()
                        .map(|&n| {
                            let (a, b) = (rng.below(n + 1), rng.below(n + 1));
                            (a.min(b), a.max(b))
                        })
                        .collect(),
                );
            }
        }
    }
    let one_each = units.iter().all(|u| u.len() <= 1) && units.iter().any(|u| !u.is_empty());
    let one = |b: &NBox| join(&b.iter().map(|(lo, hi)| format!("{lo}:{hi}")).collect::<Vec<_>>(), ",");
    let each: Vec<String> = units
        .iter()
        .map(|u| if u.is_empty() { "-".into() } else { join(&u.iter().map(one).collect::<Vec<_>>(), "+") })
        .collect();
    let mut text = format!("boxes({})", each.join("|"));
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if one_each && rng.chance(2) {
        rng.shuffle(&mut order);
        text += &format!(";order={}", join(&order, ","));
    }
    Spec::Boxes { units, order, text }
}

pub fn random_digits(rng: &mut Rng, elems: u64) -> Spec {
    // Factors of the number of elements, some of them joined, in any order.
    let mut radices: Vec<u64> = Vec::new();
    let mut rest = elems;
    for p in 2..=elems {
        while rest.is_multiple_of(p) {
            radices.push(p);
            rest /= p;
        }
    }
    rng.shuffle(&mut radices);
    while radices.len() > 1 && rng.chance(3) {
        let r = radices.pop().unwrap();
        radices[0] *= r;
    }
    if radices.is_empty() || rng.chance(5) {
        radices.push(1);
    }
    let mut digits: Vec<usize> = (0..radices.len()).collect();
    rng.shuffle(&mut digits);
    let mut unit = Vec::new();
    let mut units = 1;
    while digits.len() > 1 && units * radices[digits[0]] <= 16 && !rng.chance(3) {
        units *= radices[digits[0]];
        unit.push(digits.remove(0));
    }
    let mut text = format!("digits({}", join(&radices, "x"));
    if !unit.is_empty() {
        text += &format!(";unit={}", join(&unit, ","));
    }
    if rng.chance(2) {
        digits.sort_unstable();
    } else {
        text += &format!(";offset={}", join(&digits, ","));
    }
    Spec::Digits { radices, unit, offset: digits, text: text + ")" }
}

pub fn random_stripe(rng: &mut Rng) -> Spec {
    let bytes = rng.pick(&[1, 2, 3, 4, 5, 8, 12, 16, 24, 64, 100, 1024]);
    // With many no unit has a second stripe.
    let units = if rng.chance(3) { 1 + rng.below(300) } else { 1 + rng.below(6) };
    let text = if bytes == 1024 { "stripe(1KiB)".into() } else { format!("stripe({bytes})") };
    Spec::Stripe { bytes, units, text }
}

/// Any layout over a shape; for a writer one that covers it.
pub fn random_spec(rng: &mut Rng, shape: &[u64], writer: bool) -> Spec {
    let elems: u64 = shape.iter().product();
    match rng.below(10) {
        0 | 1 if !shape.is_empty() => random_boxes(rng, shape, writer),
        2 if elems > 0 => random_digits(rng, elems),
        3 | 4 => random_stripe(rng),
        _ => random_regular(rng, shape),
    }
}
