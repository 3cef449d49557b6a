package qrcode_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/face/qrcode"
)

// TestShapes checks that both ways to show a code have the same modules, with the three corners by
// which cameras find it, and a light margin of four modules.
func TestShapes(t *testing.T) {
	code, err := qrcode.Of("psyche://host.example:39405/friends?key=4wBqpZM9xaSheZzJSMawUKKwhdpChKbZ5eu5ky4Vigw&genesis=" + strings.Repeat("0f", 32))
	if err != nil {
		t.Fatal(err)
	}
	size := code.Size()
	shown := make([][]bool, size)
	for i := range shown {
		shown[i] = make([]bool, size)
	}
	for i, line := range strings.Split(strings.TrimSuffix(code.Text(false), "\n"), "\n") {
		for x, c := range []rune(line) {
			shown[2*i][x] = c == '▄' || c == ' '
			if 2*i+1 < size {
				shown[2*i+1][x] = c == '▀' || c == ' '
			}
		}
	}
	drawn := make([][]bool, size)
	for i := range drawn {
		drawn[i] = make([]bool, size)
	}
	for _, run := range regexp.MustCompile(`M(\d+) (\d+)h(\d+)v1`).FindAllSubmatch(code.SVG(), -1) {
		var n [3]int
		for i := range n {
			n[i], _ = strconv.Atoi(string(run[1+i]))
		}
		for x := range n[2] {
			drawn[n[1]][n[0]+x] = true
		}
	}
	if fmt.Sprint(shown) != fmt.Sprint(drawn) {
		t.Error("the codes in the terminal and in the picture differ")
	}
	for y := range size {
		for x := range size {
			if (min(x, y) < 4 || max(x, y) >= size-4) && drawn[y][x] {
				t.Fatalf("the margin is dark at %d, %d", x, y)
			}
		}
	}
	for _, corner := range [][2]int{{4, 4}, {size - 11, 4}, {4, size - 11}} {
		for y := range 7 {
			for x := range 7 {
				ring := max(max(x, 6-x), max(y, 6-y)) - 3 // 3 outside, 0 in the middle
				if drawn[corner[1]+y][corner[0]+x] != (ring != 2) {
					t.Errorf("the corner at %v is wrong at %d, %d", corner, x, y)
				}
			}
		}
	}
	if lines := strings.Split(code.Text(true), "\n"); !strings.HasPrefix(lines[0], "\x1b[") || !strings.HasSuffix(lines[0], "\x1b[0m") {
		t.Error("its colours do not begin and end with each line")
	}
	if _, err := qrcode.Of(strings.Repeat("x", 3000)); err == nil {
		t.Error("a text of any length has a code")
	}
}
