package tui

import (
	"fmt"
	"math"
	"strings"
)

// dots are the bits of a braille character, by column and row from the bottom.
var dots = [2][4]rune{{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}}

// chart draws points as lines of braille characters, with the highest and the lowest value on the left.
func chart(points []point, width, height int) []string {
	const margin = 7 // width of the values
	columns := 2 * (width - margin)
	if len(points) < 2 || columns < 4 || height < 2 {
		return nil
	}
	cells, low, high := curve(points, columns, height)
	lines := make([]string, height)
	for i := range cells {
		label := ""
		switch i {
		case 0:
			label = fmt.Sprintf("%.3f", high)
		case height - 1:
			label = fmt.Sprintf("%.3f", low)
		}
		lines[i] = fmt.Sprintf("%*.*s ", margin-1, margin-1, label) + cells[i]
	}
	return lines
}

// spark draws points in one line. It returns "" for less than two points.
func spark(points []point, width int) string {
	if len(points) < 2 {
		return ""
	}
	cells, _, _ := curve(points, 2*width, 1)
	return cells[0]
}

// curve draws points as braille characters, and returns the lowest and the highest drawn value. It
// averages points in the same column, and interpolates columns without points.
func curve(points []point, columns, height int) (lines []string, low, high float64) {
	const limit = 1e100 // limit for drawn values, so that no sum overflows
	first, last := points[0].step, points[len(points)-1].step
	sums, counts := make([]float64, columns), make([]int, columns)
	for _, p := range points {
		at := 0
		if last > first {
			at = int(uint64(p.step-min(p.step, first)) * uint64(columns-1) / uint64(last-first))
		}
		at = min(max(at, 0), columns-1)
		sums[at] += min(max(p.loss, -limit), limit)
		counts[at]++
	}
	low, high = math.Inf(1), math.Inf(-1)
	for i, n := range counts {
		if n > 0 {
			sums[i] /= float64(n)
			low, high = min(low, sums[i]), max(high, sums[i])
		}
	}
	join(sums, counts)
	if high-low < 1e-9 {
		around := max(0.5, math.Abs(high)/1000) // half a unit would not be visible next to large values
		low, high = low-around, high+around
	}
	cells := make([][]rune, height)
	for i := range cells {
		cells[i] = []rune(strings.Repeat(string(rune(0x2800)), columns/2))
	}
	for x, n := range counts {
		if n == 0 {
			continue
		}
		y := int(math.Round((sums[x] - low) / (high - low) * float64(4*height-1)))
		cells[height-1-y/4][x/2] |= dots[x%2][y%4]
	}
	for _, line := range cells {
		lines = append(lines, string(line))
	}
	return lines, low, high
}

// join interpolates the values of columns without a point.
func join(values []float64, counts []int) {
	before := -1
	for i, n := range counts {
		if n == 0 {
			continue
		}
		for between := before + 1; before >= 0 && between < i; between++ {
			share := float64(between-before) / float64(i-before)
			values[between] = values[before]*(1-share) + values[i]*share
			counts[between] = 1
		}
		before = i
	}
}
