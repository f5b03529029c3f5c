//! Canvas of terminal characters for the plotting library: 2x4 braille dots per character.

use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};

/// Number of dots per character, horizontally and vertically.
const DOTS: (i32, i32) = (2, 4);
/// First character of the braille block.
const BRAILLE: u32 = 0x2800;
/// Bit of each dot, by row and column.
const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

/// Character of the canvas.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Cell {
    dots: u8,
    letter: Option<char>,
    color: (u8, u8, u8),
}

/// Canvas; [`Canvas::text`] returns the result.
#[derive(Debug, Clone)]
pub(super) struct Canvas {
    columns: i32,
    rows: i32,
    cells: Vec<Cell>,
}

/// Error type of an infallible canvas.
#[derive(Debug, thiserror::Error)]
#[error("could not draw on the canvas")]
pub(super) struct Never;

impl Canvas {
    pub(super) fn new(columns: u16, rows: u16) -> Self {
        let cells = vec![Cell::default(); usize::from(columns) * usize::from(rows)];
        Self { columns: i32::from(columns), rows: i32::from(rows), cells }
    }

    /// Returns the drawing with colors, one line per row.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for row in self.cells.chunks(self.columns.max(1) as usize) {
            let used = row.iter().rposition(|cell| cell.dots > 0 || cell.letter.is_some()).map_or(0, |last| last + 1);
            let mut color = None;
            for cell in &row[..used] {
                let letter = match cell.letter {
                    Some(letter) => letter,
                    None if cell.dots == 0 => ' ',
                    None => char::from_u32(BRAILLE + u32::from(cell.dots)).unwrap_or(' '),
                };
                if letter != ' ' && color != Some(cell.color) {
                    let (r, g, b) = cell.color;
                    let style = anstyle::RgbColor(r, g, b).on_default();
                    text.push_str(&format!("{style}"));
                    color = Some(cell.color);
                }
                text.push(letter);
            }
            if color.is_some() {
                text.push_str(&format!("{}", anstyle::Reset));
            }
            text.push('\n');
        }
        text
    }

    fn cell(&mut self, column: i32, row: i32) -> Option<&mut Cell> {
        let inside = (0..self.columns).contains(&column) && (0..self.rows).contains(&row);
        if inside { self.cells.get_mut((row * self.columns + column) as usize) } else { None }
    }
}

impl DrawingBackend for &mut Canvas {
    type ErrorType = Never;

    fn get_size(&self) -> (u32, u32) {
        ((self.columns * DOTS.0) as u32, (self.rows * DOTS.1) as u32)
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Never>> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Never>> {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Result<(), DrawingErrorKind<Never>> {
        if color.alpha > 0.0
            && let Some(cell) = self.cell(x.div_euclid(DOTS.0), y.div_euclid(DOTS.1))
        {
            cell.dots |= BITS[y.rem_euclid(DOTS.1) as usize][x.rem_euclid(DOTS.0) as usize];
            cell.color = color.rgb;
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        _: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Never>> {
        Ok((text.chars().count() as u32 * DOTS.0 as u32, DOTS.1 as u32))
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Result<(), DrawingErrorKind<Never>> {
        let length = text.chars().count() as i32;
        let from = x.div_euclid(DOTS.0)
            - match style.anchor().h_pos {
                HPos::Left => 0,
                HPos::Center => length / 2,
                HPos::Right => length,
            };
        let row = match style.anchor().v_pos {
            VPos::Top | VPos::Center => y.div_euclid(DOTS.1),
            VPos::Bottom => (y - 1).div_euclid(DOTS.1),
        };
        for (column, letter) in (from..).zip(text.chars()) {
            if let Some(cell) = self.cell(column, row) {
                *cell = Cell { dots: 0, letter: Some(letter), color: style.color().rgb };
            }
        }
        Ok(())
    }

    /// Draws only the centre: a terminal has no room for a circle.
    fn draw_circle<S: BackendStyle>(
        &mut self,
        center: BackendCoord,
        _: u32,
        style: &S,
        _: bool,
    ) -> Result<(), DrawingErrorKind<Never>> {
        self.draw_pixel(center, style.color())
    }
}
