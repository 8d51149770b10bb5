//! Bar charts as inline SVG, with attributes and classes instead of styles.

/// Width of a bar with its gap, and height of a chart, in units of the drawing.
const STEP: usize = 5;
const HEIGHT: u64 = 80;

/// A bar chart.
pub(super) struct Bars {
    pub(super) width: usize,
    pub(super) bars: Vec<Bar>,
    /// The highest value.
    pub(super) most: u64,
    /// The last value.
    pub(super) last: u64,
}

/// A bar: all, and the part of it that is bad.
pub(super) struct Bar {
    pub(super) x: usize,
    pub(super) y: u64,
    pub(super) height: u64,
    pub(super) bad_y: u64,
    pub(super) bad_height: u64,
}

impl Bars {
    /// A chart of the last values, which are pairs of all and bad.
    pub(super) fn new(values: impl Iterator<Item = (u64, u64)>, slots: usize) -> Self {
        let values: Vec<_> = values.collect();
        let values = &values[values.len().saturating_sub(slots)..];
        let most = values.iter().map(|(all, _)| *all).max().unwrap_or(0);
        let scaled = |value: u64| match value {
            0 => 0,
            // A bar that is not zero is visible.
            value => (value.saturating_mul(HEIGHT) / most.max(1)).max(1),
        };
        // The newest at the right.
        let offset = slots - values.len();
        let bars = values.iter().enumerate().filter(|(_, (all, _))| *all > 0).map(|(index, (all, bad))| {
            let (height, bad_height) = (scaled(*all), scaled(*bad));
            Bar {
                x: (offset + index) * STEP,
                y: HEIGHT - height,
                height,
                bad_y: HEIGHT - bad_height,
                bad_height,
            }
        });
        Self {
            width: slots * STEP,
            bars: bars.collect(),
            most,
            last: values.last().map_or(0, |(all, _)| *all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_value_fills_the_chart_and_the_newest_is_at_the_right() {
        let chart = Bars::new([(0, 0), (50, 0), (100, 1)].into_iter(), 4);
        let bars: Vec<_> = chart.bars.iter().map(|bar| (bar.x, bar.y, bar.height, bar.bad_height)).collect();
        assert_eq!(bars, [(2 * STEP, 40, 40, 0), (3 * STEP, 0, 80, 1)]);
        assert_eq!((chart.width, chart.most, chart.last), (4 * STEP, 100, 100));
        assert!(Bars::new(std::iter::empty(), 4).bars.is_empty());
        assert_eq!(Bars::new((0..9).map(|value| (value, 0)), 4).bars.len(), 4);
    }
}
