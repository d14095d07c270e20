//! Colours that tell units apart, on a page and on a terminal.

/// A colour in sRGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rgb(pub u8, pub u8, pub u8);

/// For the first units: chosen by eye, neighbours far apart.
const CHOSEN: [Rgb; 12] = [
    Rgb(0x42, 0x69, 0xd0),
    Rgb(0xef, 0xb1, 0x18),
    Rgb(0xff, 0x72, 0x5c),
    Rgb(0x6c, 0xc5, 0xb0),
    Rgb(0x3c, 0xa9, 0x51),
    Rgb(0xff, 0x8a, 0xb7),
    Rgb(0xa4, 0x63, 0xf2),
    Rgb(0x97, 0xbb, 0xf5),
    Rgb(0x9c, 0x6b, 0x4e),
    Rgb(0xc5, 0xd4, 0x3e),
    Rgb(0x0e, 0x7c, 0x86),
    Rgb(0x9a, 0x9f, 0xa8),
];

/// The colour of a unit, different from that of the units near it.
pub fn unit_colour(unit: u64) -> Rgb {
    if let Some(rgb) = usize::try_from(unit).ok().and_then(|u| CHOSEN.get(u)) {
        return *rgb;
    }
    // The golden angle never comes back near to where it was; lightness and strength alternate besides. The
    // numbers are those of a small search that keep the first 26 farthest apart.
    let hue = (unit as f64 * 137.507_764 + 310.0).rem_euclid(360.0);
    let lightness = [0.42, 0.86, 0.70, 0.55][(unit % 4) as usize];
    let chroma = [0.18, 0.12, 0.08][(unit % 3) as usize];
    oklch(lightness, chroma, hue)
}

/// From nothing (0) to everything (1): white to a deep blue.
pub fn heat(share: f64) -> Rgb {
    let t = share.clamp(0.0, 1.0).powf(0.8);
    oklch(0.985 - 0.53 * t, 0.01 + 0.14 * t, 262.0 - 12.0 * (1.0 - t))
}

/// Björn Ottosson's OKLCH, to sRGB; what lies outside is clipped.
fn oklch(l: f64, chroma: f64, hue: f64) -> Rgb {
    let (sin, cos) = hue.to_radians().sin_cos();
    let (a, b) = (chroma * cos, chroma * sin);
    let cube = |x: f64| x * x * x;
    let long = cube(l + 0.396_337_777_4 * a + 0.215_803_757_3 * b);
    let mid = cube(l - 0.105_561_345_8 * a - 0.063_854_172_8 * b);
    let short = cube(l - 0.089_484_177_5 * a - 1.291_485_548_0 * b);
    let linear = [
        4.076_741_662_1 * long - 3.307_711_591_3 * mid + 0.230_969_929_2 * short,
        -1.268_438_004_6 * long + 2.609_757_401_1 * mid - 0.341_319_396_5 * short,
        -0.004_196_086_3 * long - 0.703_418_614_7 * mid + 1.707_614_701_0 * short,
    ];
    let [r, g, b] = linear.map(|c| {
        let c = c.clamp(0.0, 1.0);
        let gamma = if c <= 0.003_130_8 { 12.92 * c } else { 1.055 * c.powf(1.0 / 2.4) - 0.055 };
        (gamma * 255.0).round() as u8
    });
    Rgb(r, g, b)
}

impl Rgb {
    /// `#4269d0`
    pub fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }

    /// Black or white, whichever reads better on it.
    pub fn ink(self) -> Rgb {
        let linear = |c: u8| (f64::from(c) / 255.0).powf(2.2);
        let luminance = 0.2126 * linear(self.0) + 0.7152 * linear(self.1) + 0.0722 * linear(self.2);
        if luminance > 0.26 {
            Rgb(0x1c, 0x22, 0x2b)
        } else {
            Rgb(255, 255, 255)
        }
    }
}

/// What a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    None,
    /// The 256 colours that any terminal of today has.
    Indexed,
    /// 24 bits.
    True,
}

impl Depth {
    /// `text` on a background, with ink that reads on it.
    pub fn paint(self, background: Rgb, text: &str) -> String {
        let ink = background.ink();
        let code = |c: Rgb| match self {
            Depth::True => format!("2;{};{};{}", c.0, c.1, c.2),
            _ => format!("5;{}", nearest_indexed(c)),
        };
        match self {
            Depth::None => text.to_owned(),
            _ => format!("\x1b[48;{};38;{}m{text}\x1b[0m", code(background), code(ink)),
        }
    }

    /// `text` faint.
    pub fn faint(self, text: &str) -> String {
        self.style("2", text)
    }

    /// `text` bold.
    pub fn bold(self, text: &str) -> String {
        self.style("1", text)
    }

    fn style(self, code: &str, text: &str) -> String {
        match self {
            Depth::None => text.to_owned(),
            _ => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

/// The nearest of the 6×6×6 cube and the 24 greys.
fn nearest_indexed(colour: Rgb) -> u8 {
    let level = |i: u8| if i == 0 { 0 } else { 55 + 40 * i };
    let cube = (0..216u8).map(|i| (16 + i, Rgb(level(i / 36), level(i / 6 % 6), level(i % 6))));
    let grey = (0..24u8).map(|i| (232 + i, Rgb(8 + 10 * i, 8 + 10 * i, 8 + 10 * i)));
    let distance = |c: Rgb| {
        [(c.0, colour.0), (c.1, colour.1), (c.2, colour.2)]
            .iter()
            .map(|&(a, b)| i32::from(a).abs_diff(i32::from(b)).pow(2))
            .sum::<u32>()
    };
    cube.chain(grey).min_by_key(|&(_, c)| distance(c)).map_or(15, |(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_six_units_are_told_apart() {
        for a in 0..26u64 {
            for b in 0..a {
                let (x, y) = (unit_colour(a), unit_colour(b));
                let d = x.0.abs_diff(y.0) as u32 + x.1.abs_diff(y.1) as u32 + x.2.abs_diff(y.2) as u32;
                assert!(d > 40, "{a} {x:?} and {b} {y:?}");
            }
        }
    }

    #[test]
    fn the_cube_is_found() {
        assert_eq!(nearest_indexed(Rgb(255, 0, 0)), 196);
        assert_eq!(nearest_indexed(Rgb(128, 128, 128)), 244);
        assert_eq!(Depth::None.paint(Rgb(0, 0, 0), "x"), "x");
        assert_eq!(Depth::True.paint(Rgb(0, 0, 0), "x"), "\x1b[48;2;0;0;0;38;2;255;255;255mx\x1b[0m");
    }

    #[test]
    fn heat_runs_from_white_to_blue() {
        let (cold, hot) = (heat(0.0), heat(1.0));
        assert!(cold.0 > 240 && cold.2 > 240, "{cold:?}");
        assert!(hot.2 > hot.0 + 60, "{hot:?}");
    }
}
